"""Tests of the requests to a kernel: a valid one is parsed, and an invalid one is rejected with a reason."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwidget.model.errors import OptionError
from gpuwidget.model.kernel_requests import (
    DoctorRequest,
    FreeCacheRequest,
    Request,
    SetDeviceRequest,
    StateRequest,
    SwitchRequest,
    WatchRequest,
    parse_kernel_request,
)


@pytest.mark.parametrize(
    "request_",
    [
        StateRequest(1, "state"),
        SetDeviceRequest(1, "set_device", None, True),
        SetDeviceRequest(1, "set_device", "cuda:1", False),
        WatchRequest(1, "watch", False),
        SwitchRequest(1, "set_switch", "cudnn.benchmark", "on"),
        FreeCacheRequest(1, "free_cache"),
        DoctorRequest(1, "doctor"),
    ],
)
def test_valid_requests(request_: Request) -> None:
    """A valid request is parsed into its fields; unknown fields are ignored."""
    content = {name: getattr(request_, name) for name in type(request_).__slots__}
    assert parse_kernel_request({**content, "extra": 1}) == request_


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({}, "different versions"),
        ({"schema": 2, "ask": "state"}, "different versions"),
        ({"schema": 1}, "does not support this request"),
        ({"schema": 1, "ask": ["state"]}, "does not support this request"),
        ({"schema": 1, "ask": "what"}, "does not support this request"),
        ({"schema": 1, "ask": "watch", "on": "yes"}, "a 'watch' request without a valid 'on'"),
        ({"schema": 1, "ask": "watch", "on": 1}, "a 'watch' request without a valid 'on'"),
        ({"schema": 1, "ask": "watch"}, "a 'watch' request without a valid 'on'"),
        ({"schema": 1, "ask": "set_device", "device": 1, "new_tensors": True}, "without a valid 'device'"),
        ({"schema": 1, "ask": "set_device", "device": None}, "without a valid 'new_tensors'"),
        ({"schema": 1, "ask": "set_switch", "name": "cudnn", "value": True}, "without a valid 'value'"),
    ],
)
def test_invalid_requests(content: dict[str, Any], reason: str) -> None:
    """The error for an invalid request explains what is wrong with the request and asks the user to reload
    the page.
    """
    with pytest.raises(OptionError, match=reason) as raised:
        parse_kernel_request(content)
    assert str(raised.value).endswith("reload the page.")
