"""Finds and loads plug-ins: objects that installed packages, DeerFlow included, declare as entry points.

A plug-in that cannot be loaded costs only itself: its error takes its value's position in the result.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from deerflow.config import install_hint, resolve_use
from deerflow.config.effect import Fault
from deerflow.errors import ConfigError

OWN_PACKAGE = "deerflow"
_PREFIX = f"{OWN_PACKAGE}."

T = TypeVar("T")


class PluginError(ConfigError):
    """An installed plug-in cannot be used; the message names it, its package and the reason."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """An entry point of an installed package."""

    group: str
    """The kind of plug-in, such as `deerflow.sandboxes`."""
    name: str
    package: str
    entry_point: EntryPoint

    def load(self) -> object:
        """Import the object; raise `PluginError` for whatever the import raises."""
        try:
            return self.entry_point.load()
        except ModuleNotFoundError as error:
            missing = (error.name or self.entry_point.module).split(".")[0]
            raise self.error(f"the package {missing} is missing: {install_hint(missing)}") from error
        except (Exception, SystemExit) as error:  # a foreign module may raise anything while it is imported
            raise self.error(f"{type(error).__name__}: {error}") from error

    def error(self, reason: str) -> PluginError:
        """Return the error of this plug-in."""
        return PluginError(f"{self.group}: plug-in '{self.name}' of {self.package} cannot be used: {reason}")


def find_plugins(group: str) -> dict[str, Plugin]:
    """Return the plug-ins of a group by name, without importing them.

    DeerFlow's own win over others of the same name; otherwise the package first in the alphabet does.
    """
    return {plugin.name: plugin for plugin in reversed(_declared(group))}


def load_plugins(group: str) -> dict[str, object | PluginError]:
    """Import all plug-ins of a group; return each by name, or the error of one that cannot be used."""
    loaded: dict[str, object | PluginError] = {}
    for name, plugin in find_plugins(group).items():
        try:
            loaded[name] = plugin.load()
        except PluginError as error:
            loaded[name] = error
    return loaded


def find_plugin(group: str, name: str, *, key: str = "use") -> Plugin:
    """Return the plug-in of this name, without importing it; raise `ConfigError` if there is none.

    Args:
        key: The setting that names it, for the message.
    """
    plugins = find_plugins(group)
    if name in plugins:
        return plugins[name]
    if not any(plugin.package == OWN_PACKAGE for plugin in plugins.values()):
        raise ConfigError(
            f"{key}: {group} has no plug-ins: DeerFlow's package information is missing or older than its "
            "source; install it again (in a source folder: `make install`)"
        )
    known = ", ".join(sorted(plugins))
    raise ConfigError(f"{key}: {name!r} is unknown; use one of {known}, or `module:name`")


def load_extensions(
    group: str, uses: Iterable[str], make: Callable[[object], T], *, setting: str
) -> tuple[list[T], list[Fault]]:
    """Import what a setting names and packages declare; return what `make` returns for each, and the faults.

    Args:
        uses: The setting's value: paths as `module:Class`.
        make: Raises an error for an object that cannot be used; its text is the reason.
        setting: The setting's name, for the faults.
    """
    made: list[T] = []
    faults: list[Fault] = []
    for use in dict.fromkeys(uses):
        try:
            made.append(make(resolve_use(use)))
        except (Exception, SystemExit) as error:  # foreign code may raise anything
            reason = str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
            faults.append(Fault(f"{setting}[{use}]", reason, "correct it or take it out"))
    for plugin in find_plugins(group).values():
        try:
            made.append(make(plugin.load()))
        except (Exception, SystemExit) as error:
            named = error if isinstance(error, PluginError) else plugin.error(str(error))
            faults.append(Fault("plug-ins", str(named), f"update or uninstall {plugin.package}"))
    return made, faults


def broken_plugins() -> Iterator[tuple[Plugin, PluginError]]:
    """Yield the plug-ins of other packages that cannot be used, each with its error.

    DeerFlow's own are left out: they may need an extra, which matters only where one is configured.
    """
    for group in sorted(name for name in entry_points().groups if name.startswith(_PREFIX)):
        chosen = find_plugins(group)
        for plugin in _declared(group):
            if plugin.package == OWN_PACKAGE:
                continue
            try:
                if (other := chosen[plugin.name]) != plugin:
                    raise plugin.error(f"{other.package} has one of the same name")
                plugin.load()
            except PluginError as error:
                yield plugin, error


def _declared(group: str) -> list[Plugin]:
    found = [
        Plugin(group, point.name, point.dist.name if point.dist else "an unknown package", point)
        for point in entry_points(group=group)
    ]
    return sorted(found, key=lambda plugin: (plugin.package != OWN_PACKAGE, plugin.package, plugin.name))
