"""A language model's server on loopback, OpenAI-compatible as far as docmill asks. It reads, it does not think.

Without other instructions it answers an invoice's schema by reading the document with patterns. Tests queue answers
of their own, take structured output away, or let it misbehave with faults.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from support.peers import Asked, ProviderPeer, Reply, route

MODEL = "reader-1"
CHAT = "/v1/chat/completions"
INVOICE_SCHEMA = {
    "type": "object",
    "properties": {
        "invoice_number": {"type": "string"},
        "invoice_date": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"},
        "customer_number": {"type": "integer"},
        "total": {"type": "number"},
        "paid": {"type": ["boolean", "null"]},
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"name": {"type": "string"}, "amount": {"type": "number"}},
                "required": ["name", "amount"],
            },
        },
    },
    "required": ["invoice_number", "invoice_date", "total"],
    "additionalProperties": False,
}
MONTHS = {"February": 2, "March": 3}

Answer = str | dict[str, Any] | Callable[[list[dict[str, Any]]], str]


class ModelPeer(ProviderPeer):
    def __init__(self) -> None:
        super().__init__()
        self.answers: list[Answer] = []
        """Given out in order; the last one again and again."""
        self.refuses: set[str] = set()
        """Types of response_format that it does not know."""
        self.finish_reason = "stop"
        self.counts_tokens = True

    @property
    def base(self) -> str:
        return f"{self.url}/v1"

    def settings(self, **more: Any) -> str:
        """For DOCMILL_LLM and DOCMILL_CAPTIONS."""
        return json.dumps({"url": self.base, "model": MODEL, "api_key": "sk-test-secret", **more})

    def bodies(self) -> list[dict[str, Any]]:
        return [asked.json for asked in self.asked("POST", CHAT)]

    @route("GET", "/v1/models")
    def models(self, asked: Asked) -> Reply:
        return Reply(json={"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    @route("POST", CHAT)
    def chat(self, asked: Asked) -> Reply:
        body = asked.json
        wanted = (body.get("response_format") or {}).get("type")
        if wanted in self.refuses:
            said = f"response_format of type {wanted} is not supported, see http://10.1.2.3/docs"
            return Reply(400, {"error": {"message": said, "type": "invalid_request_error"}})
        text = self._next(body)
        answer = {
            "id": "chatcmpl-1",
            "model": MODEL,
            "choices": [
                {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": self.finish_reason}
            ],
        }
        if self.counts_tokens:
            answer["usage"] = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
        return Reply(json=answer)

    def _next(self, body: dict[str, Any]) -> str:
        messages = body["messages"]
        if not self.answers:
            asked = (body.get("response_format") or {}).get("json_schema", {}).get("schema", INVOICE_SCHEMA)
            found = read_invoice(messages[1]["content"])
            return json.dumps({name: found[name] for name in found if name in asked["properties"]}, ensure_ascii=False)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if callable(answer):
            return answer(messages)
        return answer if isinstance(answer, str) else json.dumps(answer)


def read_invoice(text: str) -> dict[str, Any]:
    """What a model would find on our sample invoices; `paid` and the last item are what a model might make up."""
    number = re.search(r"(?:Invoice|Rechnung Nr\.) (\d{4}[-/]\d{4})", text)
    english = re.search(r"date: (\d+) (\w+) (\d{4})", text)
    german = re.search(r"datum: (\d\d)\.(\d\d)\.(\d{4})", text)
    total = re.search(r"\| (?:Total|Gesamtbetrag) \|[ |]*([\d.,]+)", text)
    customer = re.search(r"(?:Customer number|Kundennummer): (\d+)", text)
    rows = re.findall(r"^\| ([^|]+?) \| \d+ \| [\d.,]+ \| ([\d.,]+) \|", text, re.MULTILINE)
    if english:
        day = f"{english[3]}-{MONTHS[english[2]]:02d}-{int(english[1]):02d}"
    else:
        day = f"{german[3]}-{german[2]}-{german[1]}" if german else ""
    return {
        "invoice_number": number[1] if number else "",
        "invoice_date": day,
        "customer_number": int(customer[1]) if customer else 0,
        "total": amount(total[1]) if total else 0,
        "paid": None,
        "items": [{"name": name, "amount": amount(price)} for name, price in rows]
        + [{"name": "Gift wrapping", "amount": 9.99}],
    }


def amount(text: str) -> float:
    return float(text.replace(".", "").replace(",", ".") if "," in text else text)
