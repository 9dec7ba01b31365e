"""Chat templates: what they write, and what they can't do."""

import contextlib
import gc
import os
import re
import threading
import time
from typing import Any

import psutil
import pytest

from services.rpc.errors import InvalidArgumentError
from services.worker.domain.load_state import LoadError
from services.worker.llm.adapters.chat_template import SOURCE_BYTES, JinjaTemplate

_MESSAGES = [{"role": "user", "content": "<b> é"}]


def _rendered(source: str, **options: Any) -> str:
    return JinjaTemplate(source, {"bos_token": "<s>"}).render(_MESSAGES, options)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        pytest.param("{{ bos_token }}{{ messages[0]['content'] }}", "<s><b> é", id="no escaping"),
        pytest.param(
            "  {% for m in messages %}\n    {{ m.role }}\n  {% endfor %}\n",
            "    user\n",
            id="blocks leave no space of their own",
        ),
        pytest.param(
            "{{ messages | tojson }}", '[{"role": "user", "content": "<b> é"}]', id="JSON"
        ),
        pytest.param(
            "{{ {'b': 1, 'a': [2]} | tojson(indent=2) }}",
            '{\n  "b": 1,\n  "a": [\n    2\n  ]\n}',
            id="JSON in lines, keys as they come",
        ),
        pytest.param(
            "{% set ns = namespace(n=0) %}{% for i in range(5) %}{% if i == 3 %}{% break %}{% endif %}"
            "{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
            "3",
            id="namespaces and breaks",
        ),
        pytest.param(
            "{{ add_generation_prompt }} {{ tools }}", "True None", id="names with values"
        ),
        pytest.param(
            "{{ tools is defined }} {{ other is defined }}", "True False", id="others none"
        ),
        pytest.param("{{ thinking }}", "yes", id="options"),
        pytest.param(
            "{% generation %}{{ messages[0].role }}{% endgeneration %}",
            "user",
            id="generation marks",
        ),
        pytest.param(
            "{% macro said(m) %}{{ m.role | upper }}{% endmacro %}{{ said(messages[0]) }}",
            "USER",
            id="macros",
        ),
        pytest.param(
            "{{ messages[-1].content.split('>')[1].strip() }}", "é", id="methods of texts"
        ),
    ],
)
def test_templates_write_what_transformers_would(source: str, text: str) -> None:
    """Its rules for space, its names and filters."""
    assert _rendered(source, thinking="yes") == text


def test_the_date_is_there() -> None:
    """For templates that tell it."""
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", _rendered("{{ strftime_now('%Y-%m-%d') }}"))


def test_a_templates_own_refusal_is_told() -> None:
    """In its words, as INVALID_ARGUMENT."""
    source = (
        "{% if messages[0].role != 'system' %}{{ raise_exception('Begin with system') }}{% endif %}"
    )
    with pytest.raises(InvalidArgumentError, match="Begin with system") as caught:
        _rendered(source)
    assert caught.value.reason == "TEMPLATE_REFUSED"


@pytest.mark.parametrize(
    ("source", "told"),
    [
        pytest.param("{{ ''.__class__.__mro__ }}", "unsafe", id="classes"),
        pytest.param("{{ (''|attr('__class__')).__mro__ }}", "unsafe", id="by filter"),
        pytest.param("{{ raise_exception.__globals__['os'] }}", "unsafe", id="globals"),
        pytest.param("{{ messages.append(1) }}", "not allowed", id="changing what is given"),
        pytest.param("{{ cycler.__init__.__globals__ }}", "unsafe", id="a helper's globals"),
        pytest.param("{% include 'x' %}", "TypeError", id="other files"),
        pytest.param("{{ nothing.at_all }}", "UndefinedError", id="what is not there"),
        pytest.param("{{ 1 + messages }}", "TypeError", id="what makes no sense"),
        pytest.param("{{ 'a' * 10**9 }}", "memory", id="a huge text"),
        pytest.param(
            "{% for i in range(99999) %}{{ 'a' * 99999 }}{% endfor %}", "more than", id="long"
        ),
        pytest.param("{% for i in range(10**9) %}{% endfor %}", "Range too big", id="a huge range"),
        pytest.param("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "too deep", id="recursion"),
    ],
)
def test_what_a_template_may_not_do_is_an_error(source: str, told: str) -> None:
    """It says why, and the next conversation is rendered as before."""
    template = JinjaTemplate("{% if go %}" + source + "{% endif %}fine", {}, seconds=20)
    with pytest.raises(InvalidArgumentError) as caught:
        template.render(_MESSAGES, {"go": True})
    assert told in caught.value.message
    assert template.render(_MESSAGES) == "fine"


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(
            "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
            id="loops in loops",
        ),
        pytest.param(
            "{% set n = namespace(x=[1]) %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}"
            "{% endfor %}{{ n.x }}",
            id="one operation without end",
        ),
        pytest.param("{{ (messages | length + 9) ** (10 ** 9) }}", id="one number without end"),
    ],
)
def test_a_template_without_end_is_ended(source: str) -> None:
    """After its time; its process is gone, and the next conversation has another."""
    before = _children()
    template = JinjaTemplate("{% if go %}" + source + "{% endif %}fine", {}, seconds=2.0)
    [child] = _children() - before
    started = time.monotonic()
    with pytest.raises(InvalidArgumentError, match="longer than"):
        template.render(_MESSAGES, {"go": True})
    assert time.monotonic() - started < 60
    assert not psutil.pid_exists(child)
    assert template.render(_MESSAGES) == "fine"


def test_the_process_ends_with_the_template() -> None:
    """Nothing is left when nobody holds it any more."""
    before = _children()
    template = JinjaTemplate("fine", {})
    [child] = _children() - before
    del template
    gc.collect()
    assert not psutil.pid_exists(child)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        pytest.param("{% for %}", "TemplateSyntaxError", id="syntax"),
        pytest.param("{{ x | no_such_filter }}", "no_such_filter", id="an unknown filter"),
        pytest.param("{{" + "(" * 20_000 + ")" * 20_000 + "}}", "too deep", id="nested too deep"),
        pytest.param("x" * (SOURCE_BYTES + 1), "longer than", id="too long"),
    ],
)
def test_what_can_not_be_parsed_is_no_template(source: str, told: str) -> None:
    """Said when the model is loaded."""
    before = _children()
    with pytest.raises(LoadError, match="chat template") as caught:
        JinjaTemplate(source, {}).check()
    assert told in str(caught.value)
    assert _children() <= before


def test_a_conversation_may_be_long() -> None:
    """Megabytes go through the pipe, both ways."""
    content = "wörld 😀 " * 300_000
    template = JinjaTemplate("{{ messages[0].content }}", {}, seconds=20)
    assert template.render([{"role": "user", "content": content}]) == content


def test_what_a_caller_nests_too_deep_is_refused() -> None:
    """Nothing of it reaches the template's process, which goes on."""
    template = JinjaTemplate("fine", {})
    nested: list[Any] = []
    for _ in range(5000):
        nested = [nested]
    with pytest.raises(InvalidArgumentError, match="too deep"):
        template.render(_MESSAGES, {"options": nested})
    assert template.render(_MESSAGES) == "fine"


def test_half_a_surrogate_pair_passes_through() -> None:
    """The tokenizer refuses it, with its place."""
    template = JinjaTemplate("{{ messages[0].content }}", {})
    assert template.render([{"role": "user", "content": "a\ud800"}]) == "a\ud800"


def test_several_threads_may_render() -> None:
    """One after the other, each with its own answer."""
    template = JinjaTemplate("{{ messages[0].content }}", {}, seconds=20)
    found: list[tuple[str, str]] = []

    def work(name: str) -> None:
        found.extend(
            (name, template.render([{"role": "user", "content": name}])) for _ in range(50)
        )

    threads = [threading.Thread(target=work, args=(f"{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 200
    assert all(name == text for name, text in found)


def _children() -> set[int]:
    """Processes of templates that this one has."""
    gc.collect()
    found = set()
    for one in psutil.Process(os.getpid()).children():
        with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
            if "template_child" in " ".join(one.cmdline()):
                found.add(one.pid)
    return found
