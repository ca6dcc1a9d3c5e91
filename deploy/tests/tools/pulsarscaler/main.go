// Asks Pulsar what KEDA would ask it. The scaler is KEDA's own source: tools.sh copies it from the
// module into the package `scalers` beside this one, since KEDA's package holds every scaler there is.
//
// Standard input is a trigger as rendered: {"metadata": {...}, "authParams": {...}}. Standard output is
// what KEDA would tell the autoscaler.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"agentfleet/deploy/tests/tools/scalers"

	"github.com/kedacore/keda/v2/pkg/scalers/scalersconfig"
)

type trigger struct {
	Metadata   map[string]string `json:"metadata"`
	AuthParams map[string]string `json:"authParams"`
}

type answer struct {
	Value  float64 `json:"value"`
	Target int64   `json:"target"`
	Active bool    `json:"active"`
}

func ask() (answer, error) {
	var given trigger
	if err := json.NewDecoder(os.Stdin).Decode(&given); err != nil {
		return answer{}, err
	}
	scaler, err := scalers.NewPulsarScaler(&scalersconfig.ScalerConfig{
		GlobalHTTPTimeout: 5 * time.Second,
		TriggerMetadata:   given.Metadata,
		AuthParams:        given.AuthParams,
	})
	if err != nil {
		return answer{}, err
	}
	ctx := context.Background()
	external := scaler.GetMetricSpecForScaling(ctx)[0].External
	values, active, err := scaler.GetMetricsAndActivity(ctx, external.Metric.Name)
	if err != nil {
		return answer{}, err
	}
	return answer{
		Value:  values[0].Value.AsApproximateFloat64(),
		Target: external.Target.AverageValue.Value(),
		Active: active,
	}, nil
}

func main() {
	answer, err := ask()
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(answer)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
