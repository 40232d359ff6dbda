package sinkmaker

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-msk-iam-sasl-signer-go/signer"
	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/kubebridge/bridge/config"
)

// mskToken returns a function that signs a token of Amazon MSK for each connection. The
// credentials are those of AWS's default chain; the SDK keeps them until shortly before their end.
// It reads variables and files, and asks no server.
func mskToken(ctx context.Context, c *config.AWS) (func(context.Context) (string, error), error) {
	if c == nil {
		c = new(config.AWS)
	}
	loaded, err := awsconfig.LoadDefaultConfig(ctx, awsconfig.WithRegion(c.Region),
		awsconfig.WithSharedConfigProfile(c.Profile))
	if err != nil {
		key := "sasl.aws" // one of the files of AWS's configuration
		if c.Profile != "" {
			key = "sasl.aws.profile"
		}
		return nil, aboutKey(key, err)
	}
	if loaded.Region == "" {
		return nil, aboutKey("sasl.aws.region", errors.New("no AWS region: set this key, or the "+
			"variable AWS_REGION"))
	}
	credentials := loaded.Credentials
	if c.RoleARN != "" {
		credentials = aws.NewCredentialsCache(stscreds.NewAssumeRoleProvider(
			sts.NewFromConfig(loaded), c.RoleARN, func(o *stscreds.AssumeRoleOptions) {
				o.RoleSessionName = "bridge"
			}))
	}
	whence := cmp.Or(c.RoleARN, "environment, web identity, profile, container or instance")
	return func(ctx context.Context) (string, error) {
		token, _, err := signer.GenerateAuthTokenFromCredentialsProvider(ctx, loaded.Region,
			credentials)
		if err != nil {
			return "", fmt.Errorf("get credentials of AWS (%s): %w", whence, err)
		}
		return token, nil
	}, nil
}
