"""German inflection: determiners, adjectives, nouns, relative pronouns and finite verbs."""

from minitransformer.data.demo.lexicon import (
    Adjective,
    Agreement,
    Case,
    Determiner,
    Gender,
    Noun,
    Number,
    Paradigm,
    Verb,
)

Endings = dict[Case, dict[Gender | None, str]]
"""Endings by case and by gender; the key of the plural, which has no gender, is None."""


def _endings(nominative: str, accusative: str, dative: str, genitive: str) -> Endings:
    """A table from one row for each case with the columns masculine, feminine, neuter and plural; "-" is no ending."""
    columns = (*Gender, None)
    rows = zip(Case, (nominative, accusative, dative, genitive), strict=True)
    return {case: dict(zip(columns, row.replace("-", "").split(" "), strict=True)) for case, row in rows}


_DER_WORD = _endings("er e es e", "en e es e", "em er em en", "es er es er")
_EIN_WORD = _endings("- e - e", "en e - e", "em er em en", "es er es er")
_NO_ENDING = _endings("- - - -", "- - - -", "- - - -", "- - - -")
_DETERMINERS = {
    Paradigm.DEFINITE_ARTICLE: _endings("er ie as ie", "en ie as ie", "em er em en", "es er es er"),
    Paradigm.DER_WORD: _DER_WORD,
    Paradigm.EIN_WORD: _EIN_WORD,
    Paradigm.QUANTIFIER: _DER_WORD,
    Paradigm.UNINFLECTED: _NO_ENDING,
}

_WEAK = _endings("e e e en", "en e e en", "en en en en", "en en en en")
_MIXED = _endings("er e es en", "en e es en", "en en en en", "en en en en")
_STRONG = _endings("er e es e", "en e es e", "em er em en", "en er en er")
_DECLENSIONS = {
    Paradigm.DEFINITE_ARTICLE: _WEAK,
    Paradigm.DER_WORD: _WEAK,
    Paradigm.EIN_WORD: _MIXED,
    Paradigm.QUANTIFIER: _STRONG,
    Paradigm.UNINFLECTED: _STRONG,
}


def determiner_form(determiner: Determiner, case: Case, gender: Gender, number: Number) -> str:
    """A determiner is its stem and the ending of its paradigm: d-em, dies-em, ein-em."""
    return determiner.german + _DETERMINERS[determiner.paradigm][case][_column(gender, number)]


def adjective_form(adjective: Adjective, paradigm: Paradigm, case: Case, gender: Gender, number: Number) -> str:
    """An attributive adjective is weak after der-words, mixed after ein-words and strong after all else."""
    return adjective.german_stem + _DECLENSIONS[paradigm][case][_column(gender, number)]


def noun_form(noun: Noun, case: Case, number: Number) -> str:
    """A noun adds -n in the dative plural; a weak masculine takes its genitive form outside the nominative."""
    if number is Number.PLURAL:
        return noun.german_plural + ("n" if case is Case.DATIVE and noun.german_plural[-1] not in "ns" else "")
    oblique = case is not Case.NOMINATIVE and _is_weak(noun)
    return noun.german_genitive if case is Case.GENITIVE or oblique else noun.german


def relative_pronoun_form(case: Case, gender: Gender, number: Number) -> str:
    """A relative pronoun has the forms of the definite article, but "denen" in the dative plural."""
    if case is Case.DATIVE and number is Number.PLURAL:
        return "denen"
    return "d" + _DETERMINERS[Paradigm.DEFINITE_ARTICLE][case][_column(gender, number)]


def present_form(verb: Verb, agreement: Agreement) -> str:
    """The present: the plural is the infinitive, the first person drops its -n, unless the third has no -t (weiß)."""
    if verb.irregular is not None:
        return verb.irregular.german_present.agreeing(agreement)
    if agreement is Agreement.PLURAL:
        return verb.german_infinitive
    if agreement is Agreement.THIRD_SINGULAR or not verb.german_third_singular.endswith("t"):
        return verb.german_third_singular
    return verb.german_infinitive.removesuffix("n")


def _column(gender: Gender, number: Number) -> Gender | None:
    return None if number is Number.PLURAL else gender


def _is_weak(noun: Noun) -> bool:
    """Whether a masculine noun is weak: strong ones have a genitive in -s."""
    return noun.gender is Gender.MASCULINE and noun.german_genitive.endswith("n")
