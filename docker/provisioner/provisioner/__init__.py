"""The provisioner: gives DeerFlow sandbox pods in a Kubernetes cluster, over a small HTTP API."""
