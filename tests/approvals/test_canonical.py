from __future__ import annotations

import pytest

from approvals import canonical
from approvals.exceptions import InvalidArguments

VECTORS = [
    ({"b": 1, "a": [True, None, "é"]}, '{"a":[true,null,"é"],"b":1}'),
    ({"id": 2512292042121000001}, '{"id":2512292042121000001}'),
    ({"x": 1.0, "y": 0.1, "z": 1e21}, '{"x":1.0,"y":0.1,"z":1e+21}'),
    ("line\nbreak\u2028\u202e", '"line\\nbreak\u2028\u202e"'),
    ({"Z": 0, "a": 0, "é": 0, "😀": 0}, '{"Z":0,"a":0,"é":0,"😀":0}'),
    (-0.0, "-0.0"),
]


@pytest.mark.parametrize(("value", "text"), VECTORS)
def test_the_vectors_of_the_docs(value, text):
    assert canonical.dumps(value) == text
    assert canonical.dumps(canonical.loads(text)) == text


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        float("inf"),
        "a\0b",
        {"a\0": 1},
        {1: 2},
        "\ud800",
        {"a": {1, 2}},
        b"bytes",
    ],
)
def test_what_has_no_canonical_form_is_refused(value):
    with pytest.raises(InvalidArguments):
        canonical.dumps(value)


@pytest.mark.parametrize(
    "text", ["NaN", "[Infinity]", '{"a":1,"a":2}', "{", "[" * 100_000, "1" * 5000]
)
def test_what_is_not_strict_json_is_refused(text):
    with pytest.raises(InvalidArguments):
        canonical.loads(text)


def test_deep_values_are_refused():
    value = []
    for _ in range(canonical.MAX_DEPTH + 1):
        value = [value]
    with pytest.raises(InvalidArguments, match="nested"):
        canonical.dumps(value)


def test_a_refusal_names_the_place():
    with pytest.raises(InvalidArguments, match=r"a\.b\[1\]"):
        canonical.dumps({"a": {"b": ["ok", "no\0"]}})


def test_the_digest_vectors_of_the_docs():
    salt = "00" * 32
    assert canonical.keyed_digest(salt, "sayso.arguments.v1", '{"a":1}') == (
        "4b29a292926008ce8c69e6318b52025f0a32fbe5d83b10ec44f816ddb7bc3d25"
    )
