"""Mounting writes a task's output under its stem, and touches nothing else."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from docmill.core.errors import Conflict, DocmillError, NotFound
from docmill.core.mounting import Mounted, mount, survives
from docmill.core.pointer import parse, render, resolve

OUTPUT = {"invoice": {"filename": "invoice.pdf", "content": "# Invoice"}}
NAMES = st.sampled_from(["a", "b", "invoice", "x/y", "m~n", "", "0"])
JSON = st.recursive(
    st.none() | st.integers(0, 3) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=10,
)


def nobody(pointer: str, entry: str) -> None:
    return None


def by(task_id: int) -> Any:
    return lambda pointer, entry: task_id


def mounted(data: Any, pointer: str = "", *, stem: str = "invoice", output: Any = OUTPUT, **more: Any) -> Mounted:
    return mount(data, pointer, stem, output, **{"task_id": 1, "mounted_by": nobody, **more})


def test_the_stem_is_not_nested_twice() -> None:
    assert {"invoice": OUTPUT["invoice"]} == mounted({}).data


@pytest.mark.parametrize("output", [{"number": "7"}, {"invoice": 1, "more": 2}, [1], "text", None, {}])
def test_an_output_without_its_stem_is_put_under_it_as_it_is(output: Any) -> None:
    assert {"invoice": output} == mounted({}, output=output).data


def test_the_path_names_what_was_written_with_slashes_escaped() -> None:
    done = mounted({"a/b": {"t~": {}}}, "/a~1b/t~0", stem="in/voice")

    assert "/a~1b/t~0/in~1voice" == done.path
    assert OUTPUT == resolve(done.data, parse(done.path))


def test_the_same_task_replaces_its_own_entry_where_it_stands() -> None:
    done = mounted({"invoice": "old", "other": 1}, mounted_by=by(1))

    assert [("invoice", OUTPUT["invoice"]), ("other", 1)] == list(done.data.items())


@pytest.mark.parametrize("owner", [None, 2])
def test_a_key_of_somebody_else_is_a_conflict(owner: int | None) -> None:
    with pytest.raises(Conflict) as caught:
        mounted({"invoice": "old"}, mounted_by=lambda pointer, entry: owner)

    assert "mount_conflict" == caught.value.code


def test_an_array_grows_each_time() -> None:
    first = mounted({"list": [0]}, "/list")
    second = mounted(first.data, "/list", mounted_by=by(1))

    assert "/list/1" == first.path
    assert "/list/2" == second.path
    assert {"list": [0, OUTPUT, OUTPUT]} == second.data


def test_once_replaces_the_element_that_the_task_put_into_an_array() -> None:
    first = mounted([0], once=True)
    again = mounted([*first.data, 2], once=True, mounted_by=lambda _, entry: 1 if entry == first.entry else None)

    assert "/1" == again.path
    assert [0, OUTPUT, 2] == again.data


@pytest.mark.parametrize("data", [None, 1, "text", True])
def test_a_scalar_cannot_be_mounted_into(data: Any) -> None:
    with pytest.raises(Conflict) as caught:
        mounted({"here": data}, "/here")

    assert "pointer_not_container" == caught.value.code


def test_a_missing_path_is_not_made() -> None:
    with pytest.raises(NotFound) as caught:
        mounted({"a": {}}, "/a/b")

    assert "pointer_not_found" == caught.value.code


@given(JSON, st.lists(NAMES | st.just("1"), max_size=3), NAMES, JSON)
def test_nothing_else_changes_and_nothing_is_lost(data: Any, tokens: list[str], stem: str, output: Any) -> None:
    before = deepcopy(data)
    try:
        done = mount(data, render(tokens), stem, output, task_id=1, mounted_by=nobody)
    except DocmillError:
        assert before == data
        return

    assert before == data
    assert before == _without(done.data, parse(done.path))


def _without(data: Any, tokens: tuple[str, ...]) -> Any:
    data = deepcopy(data)
    holder = resolve(data, tokens[:-1])
    del holder[tokens[-1] if isinstance(holder, dict) else int(tokens[-1])]
    return data


def test_an_entry_survives_a_replacement_only_unchanged() -> None:
    old = {"list": [{"invoice": 1}], "more": 0}

    assert survives(old, {"list": [{"invoice": 1}]}, "/list", "0")
    assert not survives(old, {"list": [{"invoice": 2}]}, "/list", "0")
    assert not survives(old, {"list": []}, "/list", "0")
    assert not survives(old, "gone", "/list", "0")
