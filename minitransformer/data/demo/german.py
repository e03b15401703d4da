"""The German wording of a meaning: the finite verb in second, first or last place, the rest of the verb at the end.

Conventions: the present covers the English present, the Perfekt both English pasts, but "was" is "war"; prepositions
are always contracted with the article (im, ins, am, vom, zum, zur); a pronoun follows its person's sex (er, sie); a
subject precedes pronouns, lest they be taken for the subject (weil die Frau sie sieht); coordinated clauses have no
comma before "und".
"""

from minitransformer.data.demo.inflection import (
    adjective_form,
    determiner_form,
    noun_form,
    present_form,
    relative_pronoun_form,
)
from minitransformer.data.demo.lexicon import Case, Tense
from minitransformer.data.demo.meaning import (
    Clause,
    Comparison,
    Conjunct,
    ContentQuestion,
    Coordination,
    Expression,
    NounPhrase,
    Phrase,
    PolarQuestion,
    PrepositionalPhrase,
    Pronoun,
    RelativeClause,
    RelativePronoun,
    Role,
    Sentence,
    Statement,
    Subordination,
)
from minitransformer.data.demo.verbs import BE, HAVE

_CONTRACTIONS = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("von", "dem"): "vom",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
}


def german_sentence(sentence: Sentence) -> str:
    """The sentence in German, beginning in lower case and without a full stop."""
    return _punctuate(_sentence(sentence))


def german_phrase(phrase: Phrase, case: Case) -> str:
    """A phrase in German; one with a relative clause ends in the comma that closes it."""
    match phrase:
        case Expression():
            return phrase.german
        case Pronoun() | RelativePronoun():
            return _pronoun(phrase, case)
        case NounPhrase():
            return _noun_phrase(phrase, case)
        case PrepositionalPhrase():
            return _prepositional_phrase(phrase)
        case Conjunct(first, second):
            return f"{german_phrase(first, case)} und {german_phrase(second, case)}"
        case Comparison(adjective, standard):
            return f"{adjective.german_comparative} als {german_phrase(standard, case)}"


def _sentence(sentence: Sentence) -> str:
    match sentence:
        case Statement(clause, front) | ContentQuestion(clause, front):
            question = "?" if isinstance(sentence, ContentQuestion) else ""
            return f"{_constituent(clause, front)} {_verb_first(clause, front)}{question}"
        case PolarQuestion(clause):
            return f"{_verb_first(clause, None)}?"
        case Coordination(first, conjunction, second):
            comma = "," if conjunction.german == "aber" else ""
            return f"{_sentence(first)}{comma} {conjunction.german} {_sentence(second)}"
        case Subordination(main, conjunction, subordinate, subordinate_first):
            dependent = f"{conjunction.german} {_verb_last(subordinate, None)}"
            if subordinate_first:
                return f"{dependent}, {_verb_first(main, None)}"
            return f"{_sentence(Statement(main))}, {dependent}"


def _punctuate(text: str) -> str:
    """A relative clause's closing comma yields to other punctuation and to the end of the sentence."""
    return text.replace(",,", ",").replace(",?", "?").removesuffix(",")


def _pronoun(pronoun: Pronoun | RelativePronoun, case: Case) -> str:
    if isinstance(pronoun, RelativePronoun):
        return relative_pronoun_form(case, pronoun.gender, pronoun.number)
    if case is Case.NOMINATIVE:
        return pronoun.german
    return pronoun.german_dative if case is Case.DATIVE else pronoun.german_accusative


def _noun_phrase(phrase: NounPhrase, case: Case) -> str:
    """Determiner, adjectives and noun agree in case, gender and number; the possessor follows in the genitive."""
    determiner, gender, number = phrase.determiner, phrase.noun.gender, phrase.number
    words = [determiner_form(determiner, case, gender, number)] if determiner.german else []
    words += [adjective_form(each, determiner.paradigm, case, gender, number) for each in phrase.adjectives]
    words.append(noun_form(phrase.noun, case, number))
    if phrase.possessor is not None:
        words.append(_noun_phrase(phrase.possessor, Case.GENITIVE))
    text = " ".join(words)
    return f"{text}, {_relative_clause(phrase.relative)}," if phrase.relative is not None else text


def _prepositional_phrase(phrase: PrepositionalPhrase) -> str:
    preposition = phrase.preposition
    first, *rest = german_phrase(phrase.object, preposition.case).split(" ")
    contraction = _CONTRACTIONS.get((preposition.german, first))
    return " ".join([contraction, *rest] if contraction else [preposition.german, first, *rest])


def _relative_clause(relative: RelativeClause) -> str:
    return f"{_constituent(relative.clause, relative.front)} {_verb_last(relative.clause, relative.front)}"


def _verb_first(clause: Clause, front: Role | None) -> str:
    """A main clause from its finite verb on; what precedes the verb is left to the caller."""
    finite, rest = _verbs(clause)
    return " ".join([finite, *_middle_field(clause, front), *([rest] if rest else [])])


def _verb_last(clause: Clause, front: Role | None) -> str:
    """A dependent clause after its conjunction or pronoun: the finite verb closes it, a separable prefix rejoins it."""
    finite, rest = _verbs(clause)
    joint = "" if rest == clause.verb.german_prefix else " "
    return " ".join([*_middle_field(clause, front), f"{rest}{joint}{finite}"])


def _verbs(clause: Clause) -> tuple[str, str]:
    """The finite verb and what stands at the end of a main clause: prefix, participle or infinitive."""
    verb, agreement = clause.verb, clause.agreement
    if clause.modal is not None:
        return clause.modal.german.agreeing(agreement), verb.german_prefix + verb.german_infinitive
    if clause.tense is Tense.PRESENT:
        return present_form(verb, agreement), verb.german_prefix
    if clause.tense is Tense.PAST and verb.irregular is not None:
        return verb.irregular.german_past.agreeing(agreement), ""
    return present_form(BE if verb.takes_sein else HAVE, agreement), verb.german_participle


def _middle_field(clause: Clause, front: Role | None) -> list[str]:
    """The constituents between the verbs: the known ones, adverb and negation, then the new ones.

    Time precedes a noun object (kauft heute das Auto), which precedes "oft" and "nicht" if it is definite.
    """
    objects = [role for role in (Role.RECIPIENT, Role.OBJECT) if role is not front and clause.constituent(role)]
    pronouns = [role for role in objects if isinstance(clause.constituent(role), Pronoun)]
    definite = [role for role in objects if _is_definite(clause.constituent(role))]
    indefinite = [role for role in objects if role not in pronouns and role not in definite]
    adverbs = [clause.frequency.german if clause.frequency else "", "nicht" if clause.negated else ""]
    before = [Role.SUBJECT, *pronouns, Role.CIRCUMSTANCE, *definite]
    after = [*indefinite, Role.COMPLEMENT]
    words = [_constituent(clause, role) for role in before if role is not front]
    words += adverbs
    words += [_constituent(clause, role) for role in after if role is not front]
    return [word for word in words if word]


def _is_definite(phrase: Phrase | None) -> bool:
    """Whether a phrase names something known, which German puts before its negation and adverbs."""
    match phrase:
        case NounPhrase(determiner=determiner):
            return determiner.definite
        case _:
            return isinstance(phrase, Expression | Conjunct)


def _constituent(clause: Clause, role: Role) -> str:
    phrase = clause.constituent(role)
    return german_phrase(phrase, _case(clause, role)) if phrase is not None else ""


def _case(clause: Clause, role: Role) -> Case:
    """The subject is nominative, as is its predicate; the recipient dative; the verb governs its object's case."""
    if role is Role.OBJECT:
        return clause.verb.object_case
    return Case.DATIVE if role is Role.RECIPIENT else Case.NOMINATIVE
