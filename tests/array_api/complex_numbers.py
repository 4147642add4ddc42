"""A plugin of pytest for the suite: special cases of complex numbers are skipped, since TVM has none."""

import pytest


def pytest_collection_modifyitems(items):
    for item in items:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        if getattr(parameters.get("case"), "is_complex", False):
            item.add_marker(pytest.mark.skip(reason="TVM has no complex numbers"))
