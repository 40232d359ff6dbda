package resource

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

const (
	lowerHex  = "0123456789abcdef"
	digits    = "0123456789"
	upper     = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	alnum     = upper + "abcdefghijklmnopqrstuvwxyz" + digits
	base32    = upper + "234567"
	lowerCase = "abcdefghijklmnopqrstuvwxyz" + digits
)

// corpus makes values that are not in this file, so that no scanner takes it for a leak.
type corpus struct{ *rand.Rand }

func (c corpus) of(alphabet string, n int) string {
	var b strings.Builder
	for range n {
		b.WriteByte(alphabet[c.IntN(len(alphabet))])
	}
	return b.String()
}

func (c corpus) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(c.IntN(256))
	}
	return b
}

func (c corpus) pick(of ...string) string { return of[c.IntN(len(of))] }

// secretKinds are kinds of secrets, each as people put it into a variable. A kind without a name is
// known by its value: its variable is called SETTING.
func (c corpus) secretKinds() map[string][2]string {
	word := c.pick("correct", "horse", "battery", "staple", "winter")
	jwt := "ey" + "J" + c.of(alnum, 20) + ".ey" + "J" + c.of(alnum, 40) + "." + c.of(alnum, 43)
	return map[string][2]string{
		"AWS access key":          {"", "AK" + "IA" + c.of(base32, 16)},
		"AWS temporary key":       {"", "AS" + "IA" + c.of(base32, 16)},
		"AWS secret key":          {"AWS_SECRET_ACCESS_KEY", c.of(alnum+"/+", 40)},
		"GitHub classic":          {"", "gh" + "p_" + c.of(alnum, 36)},
		"GitHub fine-grained":     {"", "github" + "_pat_" + c.of(alnum, 22) + "_" + c.of(alnum, 59)},
		"GitHub app":              {"", "gh" + "s_" + c.of(alnum, 36)},
		"GitHub by its name":      {"GITHUB_PAT", c.of(lowerHex, 40)},
		"GitLab":                  {"", "glp" + "at-" + c.of(alnum, 20)},
		"GitLab runner":           {"", "gl" + "rt-" + c.of(alnum, 20)},
		"Slack bot":               {"", "xo" + "xb-" + c.of(digits, 12) + "-" + c.of(digits, 12) + "-" + c.of(alnum, 24)},
		"Slack app":               {"", "xap" + "p-1-" + c.of(upper, 10) + "-" + c.of(digits, 13) + "-" + c.of(lowerHex, 64)},
		"Slack webhook":           {"", "https://hooks.slack.com/" + "services/T" + c.of(upper, 8) + "/B" + c.of(upper, 8) + "/" + c.of(alnum, 24)},
		"Discord webhook":         {"", "https://discord.com/api/" + "webhooks/" + c.of(digits, 18) + "/" + c.of(alnum, 68)},
		"Teams webhook":           {"", "https://a.webhook.office.com/" + "webhookb2/" + c.of(lowerHex, 32) + "/IncomingWebhook/" + c.of(lowerHex, 32)},
		"webhook by its name":     {"ALERT_WEBHOOK_URL", "https://chat.example.com/in/" + c.of(alnum, 20)},
		"Google API key":          {"", "AI" + "za" + c.of(alnum, 35)},
		"Google OAuth secret":     {"", "GOC" + "SPX-" + c.of(alnum, 28)},
		"Stripe":                  {"", "sk_" + "live_" + c.of(alnum, 24)},
		"Stripe webhook":          {"", "wh" + "sec_" + c.of(alnum, 32)},
		"OpenAI":                  {"", "sk-" + "proj-" + c.of(alnum, 48)},
		"Anthropic":               {"", "sk-" + "ant-api03-" + c.of(alnum, 93)},
		"Hugging Face":            {"", "h" + "f_" + c.of(alnum, 34)},
		"npm":                     {"", "np" + "m_" + c.of(alnum, 36)},
		"PyPI":                    {"", "py" + "pi-" + c.of(alnum, 80)},
		"Docker Hub":              {"", "dck" + "r_pat_" + c.of(alnum, 27)},
		"DigitalOcean":            {"", "do" + "p_v1_" + c.of(lowerHex, 64)},
		"Vault":                   {"", "hv" + "s." + c.of(alnum, 90)},
		"Terraform Cloud":         {"", c.of(alnum, 14) + ".atlas" + "v1." + c.of(alnum, 60)},
		"SendGrid":                {"", "S" + "G." + c.of(alnum, 22) + "." + c.of(alnum, 43)},
		"Mailgun":                 {"", "ke" + "y-" + c.of(lowerHex, 32)},
		"Mailchimp":               {"", c.of(lowerHex, 32) + "-us" + c.of("12", 2)},
		"Twilio":                  {"", "S" + "K" + c.of(lowerHex, 32)},
		"Telegram":                {"", c.of("123456789", 9) + ":A" + "A" + c.of(alnum, 33)},
		"Shopify":                 {"", "shp" + "at_" + c.of(lowerHex, 32)},
		"New Relic":               {"", "NR" + "AK-" + c.of(upper+digits, 27)},
		"Grafana":                 {"", "gls" + "a_" + c.of(alnum, 32) + "_" + c.of(lowerHex, 8)},
		"Datadog by its name":     {"DD_API_KEY", c.of(lowerHex, 32)},
		"Databricks":              {"", "dap" + "i" + c.of(lowerHex, 32)},
		"Pulumi":                  {"", "pu" + "l-" + c.of(lowerHex, 40)},
		"Linear":                  {"", "lin" + "_api_" + c.of(alnum, 40)},
		"Atlassian":               {"", "ATA" + "TT3" + c.of(alnum, 180)},
		"Postman":                 {"", "PMA" + "K-" + c.of(lowerHex, 24) + "-" + c.of(lowerHex, 34)},
		"Sentry":                  {"", "sntr" + "ys_" + c.of(alnum, 60)},
		"Dynatrace":               {"", "dt0" + "c01." + c.of(upper+"234567", 24) + "." + c.of(upper+"234567", 64)},
		"PlanetScale":             {"", "psca" + "le_tkn_" + c.of(alnum, 43)},
		"Microsoft Entra":         {"AZURE_CLIENT_SECRET", c.of(alnum, 3) + "8Q" + "~" + c.of(alnum, 34)},
		"Azure storage":           {"", "DefaultEndpointsProtocol=https;AccountName=a;Account" + "Key=" + base64.StdEncoding.EncodeToString(c.bytes(64))},
		"Azure SAS":               {"", "https://a.blob.core.windows.net/c?sv=2024-11-04&sr=c&si" + "g=" + c.of(alnum, 43)},
		"private key":             {"", "-----BEGIN RSA " + "PRIVATE KEY-----\n" + c.of(alnum, 64) + "\n-----END"},
		"JSON web token":          {"", jwt},
		"bearer token":            {"UPSTREAM_HEADER", "Bearer " + c.of(alnum, 30)},
		"basic authentication":    {"UPSTREAM_HEADER", "Basic " + base64.StdEncoding.EncodeToString(c.bytes(18))},
		"URL with a password":     {"", "postgres://app:" + c.of(alnum, 12) + "@db:5432/app"},
		"connection string":       {"", "Server=db;User Id=app;Pass" + "word=" + c.of(alnum, 12) + ";"},
		"DSN":                     {"MYSQL_DSN", "app:" + c.of(alnum, 12) + "@tcp(db:3306)/app"},
		"password of words":       {c.pick("DB_PASSWORD", "PGPASSWORD", "SMTP_PASS", "REDIS_PWD", "dbPassword"), word + "-" + word},
		"password of digits":      {c.pick("ADMIN_PASSWORD", "PASSWD", "spring.datasource.password"), c.of(digits, 8)},
		"short token":             {c.pick("API_TOKEN", "auth-token", "TOKEN_2", "refreshToken"), c.of(alnum, 6)},
		"cookie":                  {c.pick("COOKIE", "SESSION_COOKIE", "ERLANG_COOKIE"), c.of(upper, 20)},
		"session key":             {c.pick("SESSION", "SESSION_KEY", "SESSION_SECRET"), c.of(alnum, 20)},
		"encryption key":          {c.pick("ENCRYPTION_KEY", "MASTER_KEY", "SECRET_KEY_BASE", "APP_KEY", "signingKey"), base64.StdEncoding.EncodeToString(c.bytes(32))},
		"key of one vendor":       {c.pick("STRIPE_KEY", "MAPS_KEY", "KEY", "RECAPTCHA_KEY"), c.of(alnum, 24)},
		"salt":                    {c.pick("SALT", "PASSWORD_SALT", "HASH_SALT"), hex.EncodeToString(c.bytes(8))},
		"seed of NATS":            {"", "S" + "U" + c.of(base32, 56)},
		"client secret":           {c.pick("CLIENT_SECRET", "OAUTH2_PROXY_CLIENT_SECRET", "oidc-client-secret", "clientsecret"), c.of(lowerCase, 16)},
		"join token":              {"", c.of(lowerCase, 6) + "." + c.of(lowerCase, 16)},
		"licence":                 {c.pick("LICENSE_KEY", "NEW_RELIC_LICENSE_KEY"), c.of(alnum, 40)},
		"kubeconfig":              {"", "apiVersion: v1\nusers: [{user: {to" + "ken: x, password" + "=" + c.of(alnum, 8) + "}}]"},
		"mnemonic":                {"WALLET_MNEMONIC", strings.TrimSpace(strings.Repeat(word+" ", 12))},
		"credentials by its name": {"GOOGLE_CREDENTIALS", `{"type":"service_account","client_email":"a@b"}`},
	}
}

// harmless returns a variable that holds no secret, as manifests have them.
func (c corpus) harmless() (name, value string) {
	n := c.IntN(9000) + 1000
	thing := c.pick("web", "orders", "cart", "billing", "search", "auth", "session", "keycloak", "token-service", "monkey")
	all := [][2]string{
		{"LOG_LEVEL", c.pick("info", "debug", "warn", "ERROR", "trace")},
		{c.pick("PORT", "HTTP_PORT", "METRICS_PORT"), fmt.Sprint(n)},
		{"NODE_ENV", c.pick("production", "development", "staging")},
		{"POD_NAME", thing + "-" + c.of(lowerHex, 10) + "-" + c.of(lowerCase, 5)},
		{"POD_NAMESPACE", thing},
		{"TZ", c.pick("Europe/Berlin", "UTC", "America/New_York")},
		{"LANG", c.pick("en_US.UTF-8", "C.UTF-8", "de_DE.UTF-8")},
		{"JAVA_OPTS", fmt.Sprintf("-Xms%dm -Xmx%dm -XX:+UseG1GC -Dfile.encoding=UTF-8", n, n)},
		{"PATH", "/usr/local/sbin:/usr/local/bin:/usr/bin:/bin"},
		{"HOME", "/home/" + thing},
		{c.pick("DATABASE_HOST", "REDIS_HOST", "KEYCLOAK_HOST"), thing + ".shop.svc.cluster.local"},
		{c.pick("REDIS_URL", "API_URL", "AUTH_URL", "TOKEN_URL", "KEYCLOAK_URL"), fmt.Sprintf("http://%s.shop.svc:%d/v1", thing, n)},
		{"DATABASE_URL", fmt.Sprintf("postgres://app@db-%d:5432/%s?sslmode=disable", n, thing)},
		{"KAFKA_BROKERS", "kafka-0.kafka:9092,kafka-1.kafka:9092"},
		{c.pick("TIMEOUT", "SESSION_TIMEOUT", "TOKEN_TTL", "KEY_ROTATION_INTERVAL", "AUTH_TIMEOUT"), c.pick("30s", "5m", "86400", "1h30m")},
		{c.pick("TLS_CERT_FILE", "TLS_KEY_FILE", "PASSWORD_FILE", "TOKEN_PATH", "GOOGLE_APPLICATION_CREDENTIALS_FILE", "SSL_CERT_DIR"), "/etc/" + thing + "/tls/tls.key"},
		{c.pick("SECRET_NAME", "TOKEN_SECRET_NAME", "PASSWORD_SECRET_REF", "CONFIG_SECRET_NAMESPACE"), thing + "-credentials"},
		{c.pick("AUTH_ENABLED", "USE_TOKEN", "PASSWORD_REQUIRED", "ENABLE_AUTH", "REQUIRE_PASSWORD", "ALLOW_EMPTY_PASSWORD"), c.pick("true", "false", "yes", "no")},
		{c.pick("AUTH_TYPE", "AUTH_METHOD", "AUTH_MODE", "AUTH"), c.pick("oidc", "basic", "none", "ldap", "kubernetes")},
		{c.pick("SORT_KEY", "PARTITION_KEY", "ROUTING_KEY", "CACHE_KEY", "LABEL_KEY"), c.pick("created_at", "tenant", "orders.created", "app.kubernetes.io/name", "user_id")},
		{c.pick("KEY_PREFIX", "KEYSPACE", "AUTHOR", "CONNECTION_LIMIT", "PASSENGER_APP_ENV", "COMPASS_MODE"), c.pick("shop", "500", "Jane Doe", thing)},
		{"IMAGE", "ghcr.io/acme/" + thing + ":v1." + fmt.Sprint(n%100) + "." + fmt.Sprint(n%10)},
		{"IMAGE_DIGEST", "sha256:" + c.of(lowerHex, 64)},
		{c.pick("GIT_COMMIT", "REVISION", "BUILD_SHA"), c.of(lowerHex, 40)},
		{c.pick("TENANT_ID", "CLUSTER_UID", "CLIENT_ID", "TRACE_ID"), fmt.Sprintf("%s-%s-%s-%s-%s", c.of(lowerHex, 8), c.of(lowerHex, 4), c.of(lowerHex, 4), c.of(lowerHex, 4), c.of(lowerHex, 12))},
		{"VERSION", fmt.Sprintf("%d.%d.%d-rc.1+build.5", n%10, n%7, n)},
		{c.pick("AWS_REGION", "GOOGLE_CLOUD_PROJECT"), c.pick("eu-central-1", "acme-prod-123456", "us-east1")},
		{"AWS_ROLE_ARN", fmt.Sprintf("arn:aws:iam::%012d:role/%s", n, thing)},
		{"S3_BUCKET", "acme-" + thing + "-" + fmt.Sprint(n)},
		{"SPRING_PROFILES_ACTIVE", c.pick("prod,kubernetes", "default", "k8s,metrics")},
		{"OTEL_RESOURCE_ATTRIBUTES", "service.name=" + thing + ",service.version=1." + fmt.Sprint(n)},
		{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://otel-collector:4318"},
		{"CONFIG", fmt.Sprintf(`{"replicas":%d,"name":"%s","levels":["a","b"]}`, n, thing)},
		{"SCHEDULE", "*/5 * * * *"},
		{"FEATURES", "fast-path=true,new-ui=false,tokens=5"},
		{"MEMORY_LIMIT", fmt.Sprint(n) + "Mi"},
		{"SERVER_NAME", thing + ".example.com"},
		{"CLASS", "com.acme." + thing + ".TokenServiceMain"},
		{c.pick("ALLOWED_ORIGINS", "HELP"), "https://" + thing + ".example.com,https://admin.example.com"},
		{"WELCOME", "Enter your password to go on"},
		{"TOKENIZER", c.pick("cl100k_base", "whitespace")},
		{c.pick("CA_CERT", "SSL_CERT", "PUBLIC_PEM"), "/var/run/secrets/ca.crt"},
		{"KEYBOARD", c.pick("qwerty", "de-latin1")},
		{"DB_PASSWORD", "$(MYSQL_ROOT_PASSWORD)"},
		{"JWT_ISSUER", "https://issuer.example.com/realms/" + thing},
		{c.pick("SESSION_STORE", "SESSION_BACKEND", "SESSION"), c.pick("redis", "memory", "cookie")},
		{"SIGNATURE", c.pick("v4", "S3v4")},
		{"HASH", c.pick("sha256", "bcrypt", "argon2id")},
		{"CONNECTION", c.pick("keep-alive", "upgrade", "pool:10")},
		{"PIN", "cpu0"},
	}
	chosen := all[c.IntN(len(all))]
	return chosen[0], chosen[1]
}

// TestSecretCorpus finds 98 of 100 secrets at least, and takes at most one of 100 harmless values
// for one. A value has a fixed seed, so the figures do not change from run to run.
func TestSecretCorpus(t *testing.T) {
	c := corpus{rand.New(rand.NewPCG(1, 2))}
	var secrets, found, kinds int
	for secrets < 500 {
		all := c.secretKinds()
		kinds = len(all)
		for kind, s := range all {
			secrets++
			if name := cmp.Or(s[0], "SETTING"); looksSecret(name, s[1]) {
				found++
			} else {
				t.Logf("not found: %s: %s=%s", kind, name, s[1])
			}
		}
	}
	if kinds < 60 || found*100 < secrets*98 {
		t.Errorf("%d of %d secrets of %d kinds were found, want 98 %% of 60", found, secrets, kinds)
	}
	masked := map[string]int{}
	const harmless = 5000
	for range harmless {
		if name, value := c.harmless(); looksSecret(name, value) {
			masked[name+"="+value]++
		}
	}
	if len(masked)*100 > harmless {
		t.Errorf("%d of %d harmless values were taken for secrets: %v", len(masked), harmless, masked)
	}
	t.Logf("%d of %d secrets of %d kinds; %d of %d harmless: %v", found, secrets, kinds, len(masked), harmless, masked)
}

// A password may begin as a reference to a variable does.
func TestVariableOrPassword(t *testing.T) {
	for value, secret := range map[string]bool{"$(DB_PASSWORD)": false, "${DB_PASSWORD}": false, "$ecret123": true, "$(a)b": true} {
		if got := looksSecret("DB_PASSWORD", value); got != secret {
			t.Errorf("%s: %v", value, got)
		}
	}
}

func BenchmarkLooksSecret(b *testing.B) {
	c := corpus{rand.New(rand.NewPCG(1, 2))}
	var list [][2]string
	for range 1000 {
		name, value := c.harmless()
		list = append(list, [2]string{name, value})
	}
	b.ResetTimer()
	for i := range b.N {
		v := list[i%len(list)]
		looksSecret(v[0], v[1])
	}
}
