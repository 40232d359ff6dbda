# bridge: `make help` lists what there is.

GO        ?= go
BIN       := bin
LDFLAGS   := -s -w
# gRPC's debug pages use html/template, and with it the linker has to keep every exported method of every type: 15 MB of 72.
TAGS      := grpcnotrace
TEST_TIME ?= 60m
MODULE    := github.com/kubebridge/bridge
MODULES    = . client deploy table test tools
# The Kubernetes program is one link of 170 MB: without symbols it takes half the time.
KUBE_LDFLAGS := -s -w
# With the race detector a program ends a second late where GORACE does not say otherwise, and tests start many.
export GORACE ?= atexit_sleep_ms=10
GO_FILES = $(shell git ls-files '*.go')
CONTROLPLANE := CONTROLPLANE_BIN=$(CURDIR)/$(BIN)/controlplane
# count: what the tests build and run, `go test` does not see, and would take an old result for one of today.
E2E      := cd test/e2e && $(CONTROLPLANE) $(GO) test -count=1

# Programs that want other dependencies than each other and than the linters. Each is installed into
# $(BIN)/package@version: another version is another directory. Go's checksum database has the hashes
# of what they are built of.
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12
GORELEASER := github.com/goreleaser/goreleaser/v2@v2.16.0
HELM       := helm.sh/helm/v3/cmd/helm@v3.22.0
K9S        := github.com/derailed/k9s@v0.50.16
KUBECTLS   := $(foreach v,0.35.10 0.36.6 0.37.2,$(BIN)/kubectl@$(v)/kubectl)
# Of ct we need the module's directory, which has its rules, and build it there. To install a version
# of it, Go would ask for the list of all versions too, which is not to be had from every proxy.
CT         := github.com/helm/chart-testing/v3@v3.14.0
ct_dir      = $$($(GO) mod download -json $(CT) | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')

# Packages of other languages are exactly those that are locked, by their hashes (make lock). Nothing
# that they bring runs while they are installed: no scripts of npm, no building of Python packages.
# $(call python,DIR,FILE) and $(call node,DIR), which has package.json and package-lock.json.
python = python3 -m venv --clear $(1) && $(1)/bin/pip install -q --disable-pip-version-check --require-hashes --only-binary :all: -r $(2)
node = npm ci --prefix $(1) --silent --ignore-scripts --no-audit --no-fund
# $(call jars,DIR,POM): jars.sha256 beside the POM has the hash of each (make lock-jars).
jars = rm -rf $(1) && mvn -q -B -f $(2) dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/$(1) && \
  cd $(1) && sha256sum *.jar | diff $(CURDIR)/$(dir $(2))jars.sha256 - || { echo "other jars than those of $(2)"; exit 1; }

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build bin/bridge
	CGO_ENABLED=0 $(GO) build -trimpath -tags $(TAGS) -ldflags '$(LDFLAGS)' -o $(BIN)/bridge ./cmd/bridge

.PHONY: build-table
build-table: ## Build bin/bridge-table, which keeps a stream in Iceberg tables
	cd table && CGO_ENABLED=0 $(GO) build -trimpath -tags $(TAGS) -ldflags '$(LDFLAGS)' -o ../$(BIN)/bridge-table ./cmd/bridge-table

.PHONY: demo
demo: ## Run everything on this machine: a Kubernetes control plane, the bridge, and changes to watch (Ctrl-C ends it); CLUSTER=1: in the cluster that kubectl talks to
	@echo "building the demo: some minutes the first time"
	@cd test/e2e && $(GO) build -o ../../$(BIN)/demo ./cmd/demo && exec ../../$(BIN)/demo $(if $(CLUSTER),--cluster)

.PHONY: controlplane
controlplane: ## Build bin/controlplane, the Kubernetes control plane for tests (minutes the first time)
	@echo "building the Kubernetes control plane for tests: 4 to 8 minutes the first time, seconds afterwards"
	cd test/kubernetes && $(GO) build -ldflags '$(KUBE_LDFLAGS)' -o ../../$(BIN)/controlplane .

# The everyday check takes minutes: it has the linters of the two modules that others import, the
# short form of the tests, and four tests from end to end. docs/testing.md lists what it leaves out.
.PHONY: check
check: MODULES = . client
check: SHORT = -short
check: fmt-check vet lint test test-client test-everyday ## The check for every day, and for each push: minutes

.PHONY: check-all
check-all: fmt-check vet lint lint-chart licences site test test-client test-table test-controllerruntime test-monitoring test-readers test-integration test-page test-deploy test-kafka test-clients test-k9s test-recipes vuln ## Everything: what is run before a release (about an hour)

.PHONY: house
house: ## How large the house is: rooms, packages, files, arrows, words
	@$(GO) test ./docs -count=1 -run '^TestHouse$$' -v | grep -v '^---\|^===\|^ok'

.PHONY: fmt
fmt: $(BIN)/gofumpt ## Format the code
	$(BIN)/gofumpt -w $(GO_FILES)

.PHONY: fmt-check
fmt-check: $(BIN)/gofumpt
	@bad=$$($(BIN)/gofumpt -l $(GO_FILES)); if [ -n "$$bad" ]; then echo "not formatted (make fmt):"; echo "$$bad"; exit 1; fi

.PHONY: vet
vet: ## go vet, and that go.mod is tidy
	@for m in $(MODULES); do (cd $$m && echo "vet $$m" && $(GO) vet ./... && $(GO) mod tidy -diff) || exit 1; done

.PHONY: lint
lint: $(BIN)/golangci-lint $(BIN)/misspell $(BIN)/$(ACTIONLINT) ## golangci-lint, as .golangci.yml says; spelling; workflows; no word that docs/words.txt refuses
	git ls-files '*.md' '*.yaml' '*.yml' '*.tpl' Makefile | grep -v testdata | xargs $(BIN)/misspell -error
	$(BIN)/$(ACTIONLINT)/actionlint
	@for m in $(MODULES); do (cd $$m && echo "lint $$m" && $(CURDIR)/$(BIN)/golangci-lint run --timeout 15m ./...) || exit 1; done

# chart-testing asks the forge about maintainers, and compares versions with another branch: not here.
.PHONY: lint-chart
lint-chart: $(BIN)/$(CT) $(BIN)/$(HELM) $(BIN)/charts/.installed ## chart-testing: the chart's metadata, the form of its YAML, and helm lint with each file of ci/
	@rules=$(ct_dir)/etc; \
	PATH=$(CURDIR)/$(BIN)/$(CT):$(CURDIR)/$(BIN)/$(HELM):$(CURDIR)/$(BIN)/charts/bin:$$PATH ct lint --charts deploy/helm/bridge \
	  --check-version-increment=false --validate-maintainers=false --chart-yaml-schema $$rules/chart_schema.yaml \
	  --lint-conf $$rules/lintconf.yaml --helm-lint-extra-args '--strict --set image.tag=0.0.0'

$(BIN)/charts/.installed: tools/charts/requirements.txt
	@echo "installing what checks the form of the chart's YAML"
	@$(call python,$(BIN)/charts,$<)
	@touch $@

# -p: the tests wait more than they compute, so twice as many packages as processors. Without the
# race detector: docs, whose tests read files one after the other, and what a broker's lies may
# allocate, since the detector allocates too.
.PHONY: test
test: ## The tests of the packages, with the race detector
	$(GO) test ./docs
	n=$$((2 * $$(getconf _NPROCESSORS_ONLN))); $(GO) test -race $(SHORT) -p $$n -parallel $$n -timeout $(TEST_TIME) $$($(GO) list ./... | grep -v '/docs$$')
	$(if $(SHORT),,$(GO) test -timeout $(TEST_TIME) -run '^TestHostile' ./internal/sinks/nats ./internal/sinks/kafka)

.PHONY: test-client
test-client: ## The library for consumers, with client-go's informers, a NATS server and kfake
	cd client && $(GO) test -race $(SHORT) -timeout $(TEST_TIME) ./...

# Without the race detector: the writer is one goroutine, and the build of SQLite and of the libraries
# of all clouds would double. With TABLE_CATALOG, TABLE_WAREHOUSE and TABLE_PROPERTIES (a=b,c=d) the
# tests use a REST catalog.
.PHONY: test-table
test-table: $(BIN)/table/.installed ## bridge-table: kills, lost answers, upkeep, and the same rows from DuckDB, ClickHouse and pyiceberg
	cd table && TABLE_PYTHON=$(CURDIR)/$(BIN)/table/bin/python $(GO) test -count=1 -timeout $(TEST_TIME) ./... -table.kills $(TABLE_KILLS)

# With Spark too where TABLE_SPARK is a Python that has pyspark 4.0, which is no wheel, so make can't
# install it; with Trino where JDK25 is the directory of such a JDK.
JDK25 ?= $(firstword $(wildcard /usr/lib/jvm/*-25-*))
.PHONY: test-table-jvm
test-table-jvm: $(BIN)/table/.installed $(BIN)/jars/table/.fetched $(BIN)/tablejvm/.installed $(if $(JDK25),$(BIN)/jars/trino/.fetched) ## bridge-table with Nessie, a REST catalog, which is killed too; with Spark and Trino (needs Maven)
	cd table && TABLE_PYTHON=$(CURDIR)/$(BIN)/table/bin/python TABLE_JVM=$(CURDIR)/$(BIN)/tablejvm/bin/python TABLE_JARS=$(CURDIR)/$(BIN)/jars/table \
	  $(if $(JDK25),TABLE_JDK=$(JDK25) TABLE_TRINO=$(CURDIR)/$(BIN)/jars/trino) \
	  $(GO) test -count=1 -timeout $(TEST_TIME) -run '^Test(Views|RecreatedViews|Actors|Spark|AllKilled)$$' . -table.kills $(TABLE_KILLS)
TABLE_KILLS ?= 20

$(BIN)/jars/table/.fetched: table/testdata/jvm/pom.xml table/testdata/jvm/jars.sha256
	@echo "fetching Nessie, and Iceberg for Spark (300 MB)"
	@$(call jars,$(@D),$<)
	@touch $@

$(BIN)/jars/trino/.fetched: table/testdata/trino/pom.xml table/testdata/trino/jars.sha256
	@echo "fetching Trino (480 MB)"
	@$(call jars,$(@D),$<)
	@touch $@

$(BIN)/tablejvm/.installed: table/testdata/jvm/requirements.txt
	@echo "installing Java and a server of S3"
	@$(call python,$(BIN)/tablejvm,$<)
	@touch $@

$(BIN)/table/.installed: table/testdata/requirements.txt
	@echo "installing DuckDB, ClickHouse, pyiceberg and Jupyter (1 GB)"
	@$(call python,$(BIN)/table,$<)
	@touch $@

.PHONY: test-controllerruntime
test-controllerruntime: ## The library for consumers with controller-runtime
	cd test/controllerruntime && $(GO) test -race -timeout $(TEST_TIME) ./...

# What the everyday check has from end to end: kills, a leader that goes, every form, README.
.PHONY: test-everyday
test-everyday: build controlplane
	$(E2E) -race -short -timeout $(TEST_TIME) \
	  -run '^(TestCrash|TestFailover|TestEveryForm|TestReadme)$$' .

# build: README and the demo build the bridge too, and their tests do not wait for long.
.PHONY: test-integration
test-integration: build controlplane $(BIN)/readers/nats/.installed $(BIN)/readers/kafka/.installed ## The tests with the real parts: Kubernetes, NATS and Kafka's protocol, end to end
	cd test/kubernetes && CONTROLPLANE=$(CURDIR)/$(BIN)/controlplane $(GO) test -timeout $(TEST_TIME) ./...
	export READERS=$(CURDIR)/$(BIN)/readers; $(E2E) -race -tags helm -timeout $(TEST_TIME) ./...

.PHONY: test-k9s
test-k9s: build controlplane $(BIN)/$(K9S) ## K9s reads a history as a cluster (needs tmux; to build K9s takes ten minutes)
	@if ! command -v tmux >/dev/null; then \
	  echo "NOT TESTED: K9s. It needs a terminal: apt-get install tmux (with NEED_TMUX=1 this is a failure)"; \
	  test -z "$$NEED_TMUX" || exit 1; exit 0; fi; \
	K9S=$(CURDIR)/$(BIN)/$(K9S)/k9s; export K9S; $(E2E) -timeout $(TEST_TIME) -run '^TestK9s$$' .

.PHONY: picture
picture: build controlplane $(BIN)/$(K9S) ## Draw docs/k9s.svg again: K9s on the past (needs tmux)
	K9S=$(CURDIR)/$(BIN)/$(K9S)/k9s; export K9S; $(E2E) -timeout $(TEST_TIME) -run '^TestK9s$$' . -k9s.picture $(CURDIR)/docs/k9s.svg

.PHONY: test-clients
test-clients: build controlplane $(KUBECTLS) $(BIN)/readers/kubernetes/.installed ## A past cluster beside the cluster itself: the recorded requests of testdata, three versions of kubectl, clients in Python and Java (needs Java 17, Maven)
	export KUBECTLS="$(addprefix $(CURDIR)/,$(KUBECTLS))" KUBERNETES_READERS=$(CURDIR)/$(BIN)/readers/kubernetes; \
	  $(E2E) -timeout $(TEST_TIME) -run '^TestPast$$' $(CLIENTS_FLAGS) .
CLIENTS_FLAGS ?=

.PHONY: record-requests
record-requests: ## Write test/e2e/testdata/requests.txt again: what these clients ask of the API server
	$(MAKE) test-clients CLIENTS_FLAGS=-requests.record

# kubectl of a version, as k8s.io/kubernetes/cmd/kubectl makes it, which is not to be built by its
# module alone. Go's checksum database has the hashes.
$(KUBECTLS): $(BIN)/kubectl@%/kubectl: test/readers/kubectl/main.go.txt
	@echo "building kubectl $*: this may take minutes the first time"
	@mkdir -p $(@D)/src && cp $< $(@D)/src/main.go && cd $(@D)/src && rm -f go.mod go.sum && \
	  $(GO) mod init -C . kubectl 2>/dev/null && $(GO) get k8s.io/kubectl@v$* k8s.io/component-base@v$* 2>/dev/null && $(GO) mod tidy 2>/dev/null && \
	  $(GO) build -ldflags '$(LDFLAGS) -X k8s.io/component-base/version.gitVersion=v1.$(patsubst 0.%,%,$*)' -o ../kubectl .

$(BIN)/readers/kubernetes/.installed: $(wildcard test/readers/kubernetes/*)
	@echo "installing the Kubernetes clients in Python and Java (60 MB)"
	@$(call jars,$(@D),test/readers/kubernetes/pom.xml)
	@cp $^ $(@D) && $(call python,$(@D)/venv,$(@D)/requirements.txt)
	@touch $@

.PHONY: test-deploy
test-deploy: controlplane ## The chart, the plain manifests and a release: applied to the real control plane and run as they say (as root in containers; with NEED_ROOT=1 another user is a failure)
	cd deploy && $(CONTROLPLANE) $(GO) test -count=1 -timeout $(TEST_TIME) ./...

.PHONY: test-page
test-page: controlplane $(BIN)/page/.installed ## The status page in a headless Chromium (that of the machine, $CHROMIUM, or one from npm); screenshots in bin/page/_artifacts
	@chromium=$${CHROMIUM:-$$(command -v chromium || command -v chromium-browser || command -v google-chrome || echo $(CURDIR)/$(BIN)/page/unpacked/chromium)}; \
	if ! $$chromium --version >/dev/null 2>&1; then \
	  echo "NOT TESTED: the status page. No Chromium runs here: apt-get install chromium, or set CHROMIUM (with NEED_CHROMIUM=1 this is a failure)"; \
	  test -z "$$NEED_CHROMIUM" || exit 1; exit 0; fi; \
	cd test/page && CHROMIUM=$$chromium AXE=$(CURDIR)/$(BIN)/page/node_modules/axe-core/axe.min.js $(CONTROLPLANE) \
	  $(GO) test -count=1 -timeout $(TEST_TIME) -artifacts -outputdir $(CURDIR)/$(BIN)/page .

.PHONY: screenshots
screenshots: controlplane $(BIN)/page/.installed ## Make the pictures of the page in docs/ again: look at them before you commit them
	cd test/page && CHROMIUM=$${CHROMIUM:-$(CURDIR)/$(BIN)/page/unpacked/chromium} SCREENSHOTS=$(CURDIR)/docs $(CONTROLPLANE) $(GO) test -count=1 -timeout $(TEST_TIME) -run TestQuestions .

$(BIN)/page/.installed: $(wildcard test/page/testdata/*)
	@echo "installing axe-core, and a Chromium for a machine without one (70 MB)"
	@rm -rf $(BIN)/page && mkdir -p $(BIN)/page/unpacked && cp $^ $(BIN)/page
	@$(call node,$(BIN)/page) && cd $(BIN)/page && TMPDIR=$(CURDIR)/$(BIN)/page/unpacked node unpack.mjs >/dev/null
	@touch $@

.PHONY: site
site: $(BIN)/mkdocs/.installed ## The documentation as a site, in bin/site; fails for a broken link
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs/bin/mkdocs build

$(BIN)/mkdocs/.installed: docs/requirements.txt
	@echo "installing MkDocs"
	@$(call python,$(BIN)/mkdocs,$<)
	@touch $@

.PHONY: test-monitoring
test-monitoring: $(BIN)/promtool ## The unit tests of the alerts, by promtool, and the dashboard
	$(BIN)/promtool check rules deploy/monitoring/alerts.yaml
	$(BIN)/promtool test rules deploy/monitoring/alerts_test.yaml
	cd tools && $(GO) test ./monitoring

.PHONY: test-kafka
test-kafka: $(BIN)/kafka/.fetched $(BIN)/python/.installed $(BIN)/node/.installed ## The Kafka sink with Apache Kafka itself, brokers that die, and readers of other make (needs Java 17, Maven, Python, Node)
	cd test/kafka && KAFKA_LIB=$(CURDIR)/$(BIN)/kafka PYTHON=$(CURDIR)/$(BIN)/python/bin/python NODE_DIR=$(CURDIR)/$(BIN)/node \
	  $(GO) test -timeout $(TEST_TIME) $(KAFKA_FLAGS) ./...
KAFKA_FLAGS ?=

.PHONY: test-broker-faults
test-broker-faults: $(BIN)/kafka/.fetched ## Kill, pause and move three brokers, and the bridge, for FAULTS_TIME beside FAULTS_RATE changes per second, and account for each; FAULTS_BROKER=nats or kafka (needs Java 17, Maven)
	cd test/kafka && KAFKA_LIB=$(CURDIR)/$(BIN)/kafka $(GO) test -count=1 -timeout 12h -v -run '^TestBrokerFaults$$/^$(FAULTS_BROKER)' . \
	  -faults.time=$(FAULTS_TIME) -faults.rate=$(FAULTS_RATE)
FAULTS_BROKER ?=
FAULTS_TIME ?= 1h
FAULTS_RATE ?= 500

.PHONY: bench-kafka
bench-kafka: $(BIN)/kafka/.fetched ## The Kafka sink beside kafka-go's Writer and franz-go, into kfake and into Apache Kafka
	cd test/kafka && KAFKA_LIB=$(CURDIR)/$(BIN)/kafka $(GO) test -timeout $(TEST_TIME) -run '^$$' -bench Beside .

.PHONY: kafkabroker
kafkabroker:
	cd test/kafka && $(GO) build -o $(CURDIR)/$(BIN)/kafkabroker ./broker

$(BIN)/kafka/.fetched: test/kafka/pom.xml test/kafka/jars.sha256
	@echo "fetching Apache Kafka's jars (45 MB)"
	@$(call jars,$(@D),$<)
	@touch $@

$(BIN)/python/.installed: test/kafka/testdata/requirements.txt
	@echo "installing the Python clients that read back what the tests publish"
	@$(call python,$(BIN)/python,$<)
	@touch $@

$(BIN)/node/.installed: test/kafka/testdata/package.json test/kafka/testdata/package-lock.json
	@echo "installing the JavaScript SDK of CloudEvents, which has the JSON schema"
	@mkdir -p $(BIN)/node && cp $^ $(BIN)/node && $(call node,$(BIN)/node)
	@touch $@

.PHONY: test-crash
test-crash: controlplane ## Kill the bridge CRASH_KILLS times, twice, while everything changes, and account for every change; bin/crash-report.txt
	@rm -f $(BIN)/crash-report.txt
	$(E2E) -run '^TestCrash' -timeout 120m -v . \
	  -crash.kills=$(CRASH_KILLS) -crash.report=$(CURDIR)/$(BIN)/crash-report.txt $(CRASH_FLAGS)
CRASH_KILLS ?= 200
CRASH_FLAGS ?=

.PHONY: test-history
test-history: controlplane ## Ask a history for 10,000 objects at random moments and 100 states of each namespace, after kills, a 410, a restored etcd and retention
	$(E2E) -run '^TestHistoryIsTrue$$' -timeout 60m -v . \
	  -history.time=20s -history.kills=10 -history.pairs=10000 -history.states=100 -history.retention=1m

.PHONY: test-proof
test-proof: controlplane ## Compare a history with etcd itself after PROOF_TIME of troubles: every revision is there or in a declared gap, and 10,000 answers are true
	$(E2E) -race -run '^TestProof$$' -timeout 180m -v . \
	  -proof.time=$(PROOF_TIME) -proof.pause=$(PROOF_PAUSE) -proof.stop=$(PROOF_STOP) -proof.questions=10000 $(PROOF_FLAGS)
PROOF_TIME ?= 60m
PROOF_PAUSE ?= 2m
PROOF_STOP ?= 20m
PROOF_FLAGS ?=

.PHONY: test-attribution
test-attribution: build controlplane ## Compare who wrote each version with who did: 20,000 writes at once
	$(E2E) -race -run '^TestAttribution$$' -timeout $(TEST_TIME) -v . -attribution.writes=20000

.PHONY: test-who
test-who: controlplane ## Compare whom bridge who names with who did: 100,000 writes of 20 users to the same objects
	$(E2E) -run '^TestWho$$' -timeout 120m -v . -who.writes=100000 -who.objects=14 -who.kill=0

.PHONY: bench-who
bench-who: controlplane ## What an audit log costs: CPU of the API server for each write, and how much later a bridge that reads it stores a change, in pairs
	$(E2E) -run '^TestWhoCost$$' -timeout $(TEST_TIME) -v . -who.cost=500

.PHONY: test-functions
test-functions: controlplane ## Kill functions on HTTP, JetStream and Kafka, and the bridge, 20 times in 1,000 changes, with poison events and objects that hang
	$(E2E) -run '^TestFunctions$$' -timeout $(TEST_TIME) -v .

.PHONY: soak
soak: controlplane ## Follow changes for SOAK_TIME, without a broker in the middle, and fail for what grows; bin/soak has the samples. SOAK_FLAGS=-soak.kill=5m: with kills, restarts and questions
	$(E2E) -run '^TestSoak(Kills)?$$' -timeout 12h -v . \
	  -soak.time=$(SOAK_TIME) -soak.report=$(CURDIR)/$(BIN)/soak $(SOAK_FLAGS)
SOAK_TIME ?= 30m
SOAK_FLAGS ?=

.PHONY: test-readers
test-readers: $(BIN)/readers/nats/.installed $(BIN)/readers/asyncapi/.installed ## What is published to NATS, read back with clients of other make (Node, Python); schemas with AsyncAPI's parser (Node)
	ASYNCAPI_READER=$(CURDIR)/$(BIN)/readers/asyncapi/parse.mjs $(GO) test ./internal/cli -run AsyncAPIParser -timeout $(TEST_TIME)
	NATS_READER=$(CURDIR)/$(BIN)/readers/nats/read.mjs NATS_PYTHON=$(CURDIR)/$(BIN)/readers/nats/venv/bin/python $(GO) test ./internal/sinks/nats -run IndependentReader -timeout $(TEST_TIME)

$(BIN)/readers/nats/.installed: $(wildcard test/readers/nats/*)
$(BIN)/readers/kafka/.installed: $(wildcard test/readers/kafka/*)
$(BIN)/readers/nats/.installed $(BIN)/readers/kafka/.installed:
	@echo "installing the clients that read back what the tests publish"
	@mkdir -p $(@D) && cp $^ $(@D) && $(call node,$(@D))
	@$(call python,$(@D)/venv,$(@D)/requirements.txt)
	@touch $@

# What takes long, and is not in test-recipes.
JVM_RECIPES := Flink|KafkaStreams|Tables

.PHONY: test-recipes
test-recipes: ## The pages of docs/consumers: their commands and programs are run as they stand, and over kills, repeats and gaps (needs Java 17, Maven)
	$(MAKE) run-recipes RECIPES="-skip '$(JVM_RECIPES)'"

.PHONY: test-recipes-jvm
test-recipes-jvm: $(BIN)/jars/kafka-streams/.fetched $(BIN)/jars/flink/.fetched ## The same for Kafka Streams and Flink
	$(MAKE) run-recipes RECIPES="-run '$(JVM_RECIPES)'"

.PHONY: run-recipes
run-recipes: controlplane kafkabroker build-table $(BIN)/table/.installed $(BIN)/recipes/.installed $(BIN)/kafka/.fetched
	$(GO) build -o $(BIN)/nats-server github.com/nats-io/nats-server/v2
	cd test/recipes && $(GO) build -ldflags '$(LDFLAGS)' -o $(CURDIR)/$(BIN)/redpanda-connect ./connect
	cd test/recipes && PYTHON=$(CURDIR)/$(BIN)/recipes/venv/bin/python NODE_DIR=$(CURDIR)/$(BIN)/recipes $(CONTROLPLANE) \
	  KAFKA_BROKER=$(CURDIR)/$(BIN)/kafkabroker KAFKA_LIB=$(CURDIR)/$(BIN)/kafka JARS=$(CURDIR)/$(BIN)/jars \
	  NATS_SERVER=$(CURDIR)/$(BIN)/nats-server BRIDGE_TABLE=$(CURDIR)/$(BIN)/bridge-table TABLE_PYTHON=$(CURDIR)/$(BIN)/table/bin/python \
	  $(GO) test -count=1 -timeout $(TEST_TIME) $(RECIPES) .

$(BIN)/recipes/.installed: $(wildcard test/recipes/testdata/*)
	@echo "installing DuckDB, ClickHouse and the clients of the recipes (1 GB)"
	@mkdir -p $(@D) && cp $^ $(@D) && $(call node,$(@D))
	@$(call python,$(@D)/venv,$(@D)/requirements.txt)
	@touch $@

$(BIN)/jars/%/.fetched: docs/consumers/%/pom.xml docs/consumers/%/jars.sha256
	@echo "fetching the jars of $<"
	@$(call jars,$(@D),$<)
	@touch $@

$(BIN)/readers/asyncapi/.installed: $(wildcard test/readers/asyncapi/*)
	@echo "installing the parser of AsyncAPI documents"
	@mkdir -p $(@D) && cp $^ $(@D) && $(call node,$(@D))
	@touch $@

.PHONY: test-jetstream
test-jetstream: ## The tests of a JetStream cluster in trouble, with JETSTREAM_MESSAGES messages
	$(GO) test ./internal/sinks/nats -run Cluster -timeout 60m -v -jetstream.messages=$(JETSTREAM_MESSAGES)
JETSTREAM_MESSAGES ?= 500000

.PHONY: test-failover
test-failover: controlplane ## Take the leader of two replicas away FAILOVERS times, in every way, while everything changes; bin/failover-report.txt
	@rm -f $(BIN)/failover-report.txt
	$(E2E) -run '^TestFailover|^TestReplicas' -timeout 120m -v . \
	  -failover.count=$(FAILOVERS) -failover.reloads=$(FAILOVERS) -failover.report=$(CURDIR)/$(BIN)/failover-report.txt $(FAILOVER_KAFKA)
FAILOVERS ?= 50

.PHONY: test-failover-kafka
test-failover-kafka: kafkabroker $(BIN)/kafka/.fetched ## test-failover with Apache Kafka in place of kfake (needs Java 17, Maven)
	$(MAKE) test-failover FAILOVER_KAFKA='-failover.kafka=$(CURDIR)/$(BIN)/kafkabroker -failover.kafka.lib=$(CURDIR)/$(BIN)/kafka'

.PHONY: test-view
test-view: controlplane kafkabroker $(BIN)/kafka/.fetched $(BIN)/readers/nats/.installed $(BIN)/readers/kafka/.installed ## The view of the state in Apache Kafka and in a bucket after crashes, outages, expired versions and a restored etcd (needs Java 17, Maven)
	export READERS=$(CURDIR)/$(BIN)/readers; $(E2E) -run '^TestView$$' -timeout $(TEST_TIME) -v . \
	  -failover.kafka=$(CURDIR)/$(BIN)/kafkabroker -failover.kafka.lib=$(CURDIR)/$(BIN)/kafka

.PHONY: test-outage
test-outage: build ## A broker is unavailable while OUTAGE_CHANGES changes of 6 KB arrive, and the bridge is killed
	$(GO) test ./internal/cli -run Outage -timeout 60m -v -outage.changes=$(OUTAGE_CHANGES) -outage.bridge=$(CURDIR)/$(BIN)/bridge
OUTAGE_CHANGES ?= 200000

.PHONY: test-abuse
test-abuse: controlplane ## A hostile tenant writes what the API server takes for ABUSE_TIME, beside another that must not notice
	$(E2E) -run '^TestAbuse$$' -timeout 2h -v . -abuse.judge -abuse.time=$(ABUSE_TIME)
ABUSE_TIME ?= 10m

# An execution costs time for each instrumented line of the program, and `go test -fuzz` instruments
# all dependencies: here only the bridge's own packages are. Making each interesting input smaller
# takes up to a minute by default, and nothing else runs then.
.PHONY: fuzz
fuzz: ## Every fuzz target, FUZZ_TIME executions each (or a time: FUZZ_TIME=20s), one after the other
	@mkdir -p $(BIN); cache=$$($(GO) env GOCACHE)/fuzz; \
	for dir in $$(git grep -l '^func Fuzz' -- config internal | xargs -n1 dirname | sort -u); do \
	  test=$(CURDIR)/$(BIN)/fuzz.test; \
	  $(GO) test -c -gcflags='$(MODULE)/...=-d=libfuzzer=1' -o $$test ./$$dir || exit 1; \
	  for target in $$($$test -test.list '^Fuzz'); do \
	    echo "$$dir $$target"; \
	    (cd $$dir && $$test -test.run '^$$' -test.fuzz "^$$target$$" -test.fuzztime $(FUZZ_TIME) -test.fuzzminimizetime 20x \
	      -test.fuzzcachedir $$cache/$(MODULE)/$$dir) >$(BIN)/fuzz.txt 2>&1 || { cat $(BIN)/fuzz.txt; exit 1; }; \
	    grep 'execs: ' $(BIN)/fuzz.txt | tail -1; done; done
FUZZ_TIME ?= 10000000x

.PHONY: bench-micro
bench-micro: ## The benchmarks of the packages
	$(GO) test -run '^$$' -bench . -benchmem ./...

.PHONY: bench
bench: ## The whole bridge beside the program that people write today: docs/benchmarks.md (half an hour; BENCH=... has options, BENCH=-short a quick look)
	CGO_ENABLED=0 $(GO) build -trimpath -tags $(TAGS) -ldflags '$(LDFLAGS)' -o $(BIN)/bench/bridge ./cmd/bridge
	cd test/bench && $(GO) build -o ../../$(BIN)/bench/ ./cmd/...
	$(BIN)/bench/bench -bin $(BIN)/bench -out docs/benchmarks.md $(BENCH)

.PHONY: bench-informers
bench-informers: build controlplane ## INFORMERS informers on one reader of a bucket beside as many watches on the API server: CPU and memory
	export BRIDGE_BIN=$(CURDIR)/$(BIN)/bridge; $(E2E) -run '^TestManyInformers$$' -timeout $(TEST_TIME) -v . -informers.count $(INFORMERS)
INFORMERS ?= 1000

.PHONY: bench-list
bench-list: build controlplane ## 100,000 pods in pages of 500 from bridge serve and from the API server: the first page, CPU per pod, peak memory
	export BRIDGE_BIN=$(CURDIR)/$(BIN)/bridge; $(E2E) -run '^TestLongList$$' -timeout $(TEST_TIME) -v . -list.pods 100000

.PHONY: bench-verify
bench-verify: ## bridge verify over a million events, from JetStream and from a file: time, CPU and peak memory
	$(GO) test ./internal/cli -count=1 -run '^TestVerifyPlantedFaults$$' -timeout $(TEST_TIME) -v -verify.events 1000000

.PHONY: bench-history
bench-history: ## A history of HISTORY_EVENTS events, written and asked cold: CPU, disk and latency, after a tenth of them and after all (2 GB below $TMPDIR)
	$(GO) test ./internal/history -count=1 -run '^TestScale$$' -timeout 2h -v -history.events $(HISTORY_EVENTS)
HISTORY_EVENTS ?= 10000000

.PHONY: bench-page
bench-page: build controlplane $(BIN)/page/.installed ## The page over a history of PAGE_VERSIONS versions: time to the first row, frames, memory of the tab, CPU of the bridge
	cd test/page && BRIDGE_BIN=$(CURDIR)/$(BIN)/bridge CHROMIUM=$${CHROMIUM:-$(CURDIR)/$(BIN)/page/unpacked/chromium} $(CONTROLPLANE) \
	  $(GO) test -count=1 -timeout $(TEST_TIME) -run '^TestLargeHistory$$' -v . -large.versions $(PAGE_VERSIONS) -large.quiet 30s -large.flood 60s
PAGE_VERSIONS ?= 1000000

.PHONY: bench-archive
bench-archive: ## 1,000,000 events of pods of 6 KB from JetStream into an archive: time, CPU and disk (some GB below $TMPDIR)
	$(GO) test ./internal/app -count=1 -run '^TestArchiveSpeed$$' -timeout $(TEST_TIME) -v -speed.events 1000000

.PHONY: bench-table
bench-table: ## 200,000 changes of objects of 6 KB into a table: CPU, memory and bytes of a row, as written and compacted
	cd table && $(GO) test -count=1 -timeout $(TEST_TIME) -run '^TestSpeed$$' -v . -table.rows 200000

.PHONY: bench-table-large
bench-table-large: $(BIN)/table/.installed ## 10,000,000 rows: the state at a time in DuckDB, a restart; metadata after 1,440 commits; CPU of a row
	cd table && TABLE_PYTHON=$(CURDIR)/$(BIN)/table/bin/python $(GO) test -count=1 -timeout $(TEST_TIME) -run '^Test(Large|Metadata)$$' -v . \
	  -bench '^BenchmarkRow$$' -benchtime 20000x -table.large 10000000 -table.days 50 -table.commits 1440

.PHONY: bench-beside
bench-beside: ## Publishing into JetStream with and without questions to a history all the time, in pairs of rounds: p50 and p99
	$(GO) test ./internal/app -count=1 -run '^TestPublishBesideQuestions$$' -timeout $(TEST_TIME) -v -speed.events 200000 -speed.pairs 10 -speed.round 10s

# The database of vulnerabilities is a module, so it comes from where all modules come from. What is
# looked at is what a release is built of: the toolchain that go.mod names too.
VULNDB = golang.org/x/vulndb
.PHONY: vuln
vuln: $(BIN)/govulncheck ## Known vulnerabilities in what the programs call
	@rm -rf $(BIN)/vulndb; \
	osv=$$($(GO) mod download -json $(VULNDB)@latest | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')/data/osv; \
	GOBIN=$(CURDIR)/$(BIN) $(GO) install $(VULNDB)/cmd/indexdb@latest && \
	$(BIN)/indexdb -vulns $$osv -out $(BIN)/vulndb || exit 1; \
	export GOTOOLCHAIN=$$(sed -n 's/^toolchain //p' go.mod); \
	for m in . table; do echo "vuln $$m"; \
	  (cd $$m && $(CURDIR)/$(BIN)/govulncheck -db file://$(CURDIR)/$(BIN)/vulndb ./...) || exit 1; done

# The module tools pins these and all that they are built of, outside of the product's dependencies.
$(BIN)/gofumpt: PACKAGE = mvdan.cc/gofumpt
$(BIN)/golangci-lint: PACKAGE = github.com/golangci/golangci-lint/v2/cmd/golangci-lint
$(BIN)/govulncheck: PACKAGE = golang.org/x/vuln/cmd/govulncheck
$(BIN)/misspell: PACKAGE = github.com/golangci/misspell/cmd/misspell
# Without Prometheus' service discoveries, which are most of it.
$(BIN)/promtool: PACKAGE = -tags remove_all_sd github.com/prometheus/prometheus/cmd/promtool
$(BIN)/gofumpt $(BIN)/golangci-lint $(BIN)/govulncheck $(BIN)/misspell $(BIN)/promtool: tools/go.mod
	@echo "building $(@F): this may take minutes the first time"
	@cd tools && $(GO) build -o ../$@ $(PACKAGE)
	@touch $@

$(addprefix $(BIN)/,$(ACTIONLINT) $(GORELEASER) $(HELM) $(K9S)): $(BIN)/%:
	@echo "installing $*: this may take minutes the first time"
	@GOBIN=$(CURDIR)/$@ $(GO) install -ldflags '$(LDFLAGS)' $*

$(BIN)/$(CT):
	@echo "installing $(CT): this may take minutes the first time"
	@cd $(ct_dir) && GOBIN=$(CURDIR)/$@ $(GO) install -ldflags '$(LDFLAGS)' ./ct

# requirements.in and package.json name what is wanted; all that belongs to it is locked.
.PHONY: lock
lock: $(BIN)/lock/.installed ## Lock the packages of Python and npm that tests and docs use, with the hashes of every one
	@for f in $$(git ls-files '*requirements.in'); do echo "lock $$f"; (cd $$(dirname $$f) && $(CURDIR)/$(BIN)/lock/bin/pip-compile -q --generate-hashes --no-emit-find-links \
	  --no-emit-index-url --no-emit-trusted-host --strip-extras --allow-unsafe -o requirements.txt requirements.in) || exit 1; done
	@for f in $$(git ls-files '*package.json'); do echo "lock $$f"; npm install --prefix $$(dirname $$f) --package-lock-only --omit-lockfile-registry-resolved --silent || exit 1; done

$(BIN)/lock/.installed: tools/lock/requirements.txt
	@$(call python,$(BIN)/lock,$<)
	@touch $@

.PHONY: lock-jars
lock-jars: ## Write the hashes of the jars that the POMs of the tests name
	@for pom in $$(git ls-files '*pom.xml'); do rm -rf $(BIN)/lock-jars; \
	  mvn -q -B -f $$pom dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory=$(CURDIR)/$(BIN)/lock-jars && \
	  (cd $(BIN)/lock-jars && sha256sum *.jar) >$$(dirname $$pom)/jars.sha256 || exit 1; done; rm -rf $(BIN)/lock-jars

.PHONY: licences
licences: ## What the bridge and bridge-table are compiled of may be used as it is
	cd deploy && $(GO) run ./licences/cmd

# What GoReleaser needs beside the source (.goreleaser.yaml).
.PHONY: release-inputs
release-inputs:
	@mkdir -p $(BIN)/release
	cd deploy && $(GO) run ./licences/cmd -notices ../$(BIN)/release/THIRD_PARTY_NOTICES.txt
	cd deploy && $(GO) build -o ../$(BIN)/release/sbom ./sbom

.PHONY: release
release: vuln $(BIN)/$(GORELEASER) ## dist/: everything of the release whose tag is checked out, published (see .github/workflows/release.yml)
	ROOT=$(CURDIR) $(BIN)/$(GORELEASER)/goreleaser release --clean
	cd deploy && $(GO) run ./release -push

.PHONY: snapshot
snapshot: $(BIN)/$(GORELEASER) ## dist/: everything of a release but signatures, of this tree; publishes nothing
	ROOT=$(CURDIR) TAP_TOKEN= $(BIN)/$(GORELEASER)/goreleaser release --snapshot --clean --skip=sign
	cd deploy && $(GO) run ./release
	cd deploy && DIST=$(CURDIR)/dist $(GO) test -count=1 -run '^TestARelease$$' .

.PHONY: clean
clean: ## Remove what was built
	rm -rf $(BIN) dist
