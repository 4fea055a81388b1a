"""Python functions as a live API: parameters from annotations, answers as JSON, deadlines."""

import enum
import threading
from datetime import date

import anyio
import msgspec
import pytest

from actors.ports.errors import AdapterNotSetUp, LiveApiMalformed, LiveApiRefused, LiveApiUnavailable
from adapters.live.callables import CallablesApi, CallablesSettings

pytestmark = pytest.mark.anyio


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Item(msgspec.Struct):
    sku: str
    parts: list["Item"] = []


class Order(msgspec.Struct):
    number: int
    items: list[Item]


def order(
    number: int, /, item: Item, *, size: Size = Size.SMALL, when: date | None = None, tags: list[str] = []
) -> Order:
    """Place an order.

    It is shipped at once.

    Args:
        number: its number,
            which is unique.
        item: what: as in the catalogue.

    Returns:
        The order.
    """
    return Order(number, [item] * (2 if size is Size.LARGE else 1))


async def wait(seconds: float) -> str:
    await anyio.sleep(seconds)
    return "waited"


def api(*functions, **options) -> CallablesApi:
    return CallablesApi("shop", {function.__name__: function for function in functions}, **options)


async def test_parameters_come_from_annotations_and_docstrings():
    (operation,) = await api(order).tools()
    assert operation.description == "Place an order.\n\nIt is shipped at once."
    properties = operation.parameters["properties"]
    assert operation.parameters["required"] == ["number", "item"]
    assert properties["number"] == {"type": "integer", "description": "its number, which is unique."}
    assert properties["item"]["description"] == "what: as in the catalogue."
    assert properties["item"]["properties"]["sku"] == {"type": "string"}
    assert properties["size"] == {"enum": ["large", "small"], "title": "Size", "default": "small"}
    assert operation.returns["properties"]["number"] == {"type": "integer"}
    # A type that holds itself is written out a few times, not referred to.
    assert b"$ref" not in msgspec.json.encode(operation)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"number": 7, "item": {"sku": "a"}, "size": "large"}, ""),
        ({"number": "seven", "item": {"sku": "a"}}, "number"),
        ({"number": 7}, "item"),
        ({"number": 7, "item": {"sku": "a"}, "colour": "red"}, "colour"),
        ({"number": 7, "item": {"sku": "a"}, "size": "huge"}, "size"),
    ],
)
async def test_arguments_become_what_the_annotations_say_or_are_named_as_wrong(arguments, text):
    answer = await api(order).call("order", arguments)
    assert answer.error == bool(text)
    assert text in answer.text
    if not text:
        assert answer.structured == {"number": 7, "items": [{"sku": "a", "parts": []}] * 2}


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_async_functions_run_in_the_loop_and_have_a_deadline():
    assert (await api(wait).call("wait", {"seconds": 0.0})).text == "waited"
    with pytest.raises(LiveApiUnavailable, match="did not return"):
        await api(wait, timeout=0.05).call("wait", {"seconds": 60.0})


async def test_other_functions_run_beside_the_loop_and_no_more_threads_than_allowed_hang():
    released, running = threading.Event(), list[int]()

    def block() -> str:
        running.append(1)
        released.wait(60)
        return threading.current_thread().name

    hanging = api(block, timeout=0.1, threads=2)
    try:
        for _ in range(4):
            with pytest.raises(LiveApiUnavailable):
                await hanging.call("block", {})
        assert len(running) == 2
    finally:
        released.set()
    assert (await api(block).call("block", {})).text != threading.main_thread().name


async def test_odd_answers_are_told():
    def odd():
        return object()

    def fails():
        raise KeyError("no stock")

    with pytest.raises(LiveApiMalformed, match="object"):
        await api(odd).call("odd", {})
    answer = await api(fails).call("fails", {})
    assert (answer.error, answer.text) == (True, "KeyError: 'no stock'"), "and no traceback"


async def test_reads_are_claims_and_unknown_functions_refused():
    shop = api(order, wait, reads=("wa*",))
    assert (shop.read_only("wait"), shop.read_only("order"), shop.read_only("nope")) == (True, False, False)
    with pytest.raises(LiveApiRefused, match="order, wait"):
        await shop.call("nope", {})


async def test_functions_of_one_name_are_told_apart_by_their_modules():
    alike = CallablesApi.from_settings("roots", CallablesSettings(functions=("math:sqrt", "cmath:sqrt")))
    assert [tool.name for tool in await alike.tools()] == ["math_sqrt", "cmath_sqrt"]
    (argument,) = (await alike.tools())[0].parameters["properties"]
    assert (await alike.call("math_sqrt", {argument: 9})).structured == 3.0


@pytest.mark.parametrize("path", ["no_such_module:f", "math", "math:pi"])
def test_a_function_that_is_not_there_or_takes_anything_is_named(path):
    with pytest.raises(AdapterNotSetUp, match=path):
        CallablesApi.from_settings("shop", CallablesSettings(functions=(path,)))
    with pytest.raises(AdapterNotSetUp, match=r"\*words takes any number"):
        CallablesApi("shop", {"f": lambda *words: None})
