"""The description of the API in Swagger 2.0, as LibreTranslate returns it at /spec."""

from __future__ import annotations

from typing import Any

from minitransformer.system.provenance import code_version

_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_DETECTION = {"type": "object", "properties": {"confidence": {"type": "number"}, "language": _TEXT}}
_FIELDS = {
    "q": "the text; with JSON, a list of texts, too",
    "source": 'code of its language, or "auto"',
    "target": "code of the language of the translation",
    "format": '"text" or "html"',
    "alternatives": "number of further translations",
    "translation": "a translation of the text",
    "api_key": "is ignored",
}
_REQUIRED = ("q", "source", "target", "translation", "file")


def specification() -> dict[str, Any]:
    """Return the description of the API in Swagger 2.0."""
    translated: dict[str, Any] = {
        "translatedText": _TEXT, "alternatives": _TEXTS, "detectedLanguage": _DETECTION, "pivot": _TEXT
    }  # fmt: skip
    language: dict[str, Any] = {"code": _TEXT, "name": _TEXT, "targets": _TEXTS}
    words: dict[str, Any] = {"source": _TEXTS, "translation": _TEXTS, "weights": {"type": "array"}}
    return {
        "swagger": "2.0",
        "info": {"title": "minitransformer", "version": code_version()},
        "paths": {
            "/translate": _post(
                "Translate a text.",
                ("q", "source", "target", "format", "alternatives", "api_key"),
                {"type": "object", "properties": translated},
            ),
            "/translate_file": _post(
                "Translate a file.",
                ("file", "source", "target", "api_key"),
                {"type": "object", "properties": {"translatedFileUrl": _TEXT, "pivot": _TEXT}},
            ),
            "/detect": _post("Detect the language.", ("q", "api_key"), {"type": "array", "items": _DETECTION}),
            "/attention": _post(
                "Show attention between words.",
                ("q", "translation", "source", "target"),
                {"type": "object", "properties": words},
            ),
            "/languages": _get("List the languages.", {"type": "array", "items": {"properties": language}}),
            "/frontend/settings": _get("List limits and formats of files.", {"type": "object"}),
            "/health": _get("Return whether the server runs.", {"type": "object", "properties": {"status": _TEXT}}),
        },
    }


def _post(summary: str, names: tuple[str, ...], schema: dict[str, Any]) -> dict[str, Any]:
    parameters = [
        {"in": "formData", "name": name, "required": name in _REQUIRED, "type": "file" if name == "file" else "string"}
        | ({"description": _FIELDS[name]} if name in _FIELDS else {})
        for name in names
    ]
    error = {"description": "an error", "schema": {"type": "object", "properties": {"error": _TEXT}}}
    responses = {"200": {"description": "the result", "schema": schema}, "400": error, "413": error, "429": error}
    return {"post": {"summary": summary, "parameters": parameters, "responses": responses}}


def _get(summary: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"get": {"summary": summary, "responses": {"200": {"description": "the result", "schema": schema}}}}
