"""Runs the provisioner: `python -m provisioner`."""

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvicorn
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, CoreV1Api

from provisioner.app import create_app
from provisioner.cluster import Cluster
from provisioner.settings import Settings, SettingsError, settings_from


def main() -> None:
    """Serve until stopped; wrong settings end with a sentence."""
    try:
        settings = settings_from(os.environ)
    except SettingsError as error:
        sys.exit(str(error))

    @asynccontextmanager
    async def open_cluster() -> AsyncIterator[Cluster]:
        async with _connected(settings) as cluster:
            yield cluster

    host, port = os.environ.get("HOST", "0.0.0.0"), int(os.environ.get("PORT", "8002"))
    uvicorn.run(create_app(settings, open_cluster), host=host, port=port, access_log=False)


@asynccontextmanager
async def _connected(settings: Settings) -> AsyncIterator[Cluster]:
    """Connect as the pod's service account, or by a kubeconfig outside a cluster."""
    if "KUBERNETES_SERVICE_HOST" in os.environ:
        config.load_incluster_config()  # type: ignore[no-untyped-call]
    else:
        await config.load_kube_config(config_file=os.environ.get("KUBECONFIG"))  # type: ignore[no-untyped-call]
    async with ApiClient() as client:
        yield Cluster(CoreV1Api(client), settings)


if __name__ == "__main__":
    main()
