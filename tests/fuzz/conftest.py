"""How much is tried: a little and always the same in the test suite, a lot and always new by `make fuzz`."""

import os

from hypothesis import HealthCheck, Phase, settings

COMMON = {
    "deadline": None,  # a busy machine is no defect; what holds the event loop is measured apart
    "database": None,
    "suppress_health_check": list(HealthCheck),
    "phases": (Phase.explicit, Phase.generate, Phase.shrink),  # to explain a failure takes all lines' traces
}
SUITE_EXAMPLES = 25

settings.register_profile("suite", max_examples=SUITE_EXAMPLES, derandomize=True, **COMMON)
settings.register_profile(
    "long", max_examples=int(os.environ.get("FUZZ_EXAMPLES", SUITE_EXAMPLES)), print_blob=True, **COMMON
)
settings.load_profile("long" if "FUZZ_EXAMPLES" in os.environ else "suite")
