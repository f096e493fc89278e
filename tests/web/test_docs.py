"""The API's own pages work where there is no internet."""

import pytest
from support.gateway import Gateway
from web.browser import Browser


@pytest.mark.parametrize(
    ("path", "operation"),
    [
        ("/docs", "#swagger-ui .opblock-summary-path"),
        ("/redoc", "[data-section-id] [data-section-id] h2"),
    ],
)
def test_the_pages_of_the_api_load_nothing_from_elsewhere(
    chromium: Browser, gateway: Gateway, path: str, operation: str
) -> None:
    chromium.open(gateway.url)
    chromium.do("goto", url=f"{gateway.url}{path}")

    chromium.waits_for(operation)

    assert chromium.count(operation) > 150
    assert chromium.troubles == []
    chromium.do("goto", url="about:blank")
