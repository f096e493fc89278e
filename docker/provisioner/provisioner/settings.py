"""What the provisioner is told by its environment."""

from collections.abc import Mapping
from dataclasses import dataclass

DEFAULT_IMAGE = "ghcr.io/agent-infra/sandbox:latest"


class SettingsError(Exception):
    """A variable is missing or wrong; the message names it."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Where pods go and what they look like."""

    api_key: str
    namespace: str = "deer-flow"
    image: str = DEFAULT_IMAGE
    image_pull_secret: str | None = None
    node_host: str | None = None
    """The address of a node, when DeerFlow runs outside the cluster; pods get NodePorts then."""
    user_data_claim: str | None = None
    """A volume claim that holds DeerFlow's home; else `user_data_path`; else pods keep their files."""
    user_data_path: str | None = None
    """A folder of the nodes that is DeerFlow's home."""
    skills_claim: str | None = None
    skills_path: str | None = None
    cpu: str = "2"
    memory: str = "4Gi"
    allowed_images: tuple[str, ...] = ()
    """Images that a request may ask for beside the default one."""

    @property
    def is_outside(self) -> bool:
        return self.node_host is not None


def settings_from(environment: Mapping[str, str]) -> Settings:
    """Read the settings; without a key anybody in the network could start pods, so it must be there."""
    key = environment.get("PROVISIONER_API_KEY", "")
    if len(key) < 16:
        raise SettingsError(
            "PROVISIONER_API_KEY must have at least 16 characters; make one with `openssl rand -hex 32`"
        )
    claim, path = environment.get("USERDATA_PVC_NAME"), environment.get("USERDATA_HOST_PATH")
    if path and not path.startswith("/"):
        raise SettingsError(f"USERDATA_HOST_PATH must be an absolute path, not {path}")
    defaults = Settings(key)
    return Settings(
        key,
        namespace=environment.get("K8S_NAMESPACE") or defaults.namespace,
        image=environment.get("SANDBOX_IMAGE") or defaults.image,
        image_pull_secret=environment.get("SANDBOX_IMAGE_PULL_SECRET") or None,
        node_host=environment.get("NODE_HOST") or None,
        user_data_claim=claim or None,
        user_data_path=path or None,
        skills_claim=environment.get("SKILLS_PVC_NAME") or None,
        skills_path=environment.get("SKILLS_HOST_PATH") or None,
        cpu=environment.get("SANDBOX_CPU") or defaults.cpu,
        memory=environment.get("SANDBOX_MEMORY") or defaults.memory,
        allowed_images=tuple(environment.get("SANDBOX_ALLOWED_IMAGES", "").split()),
    )
