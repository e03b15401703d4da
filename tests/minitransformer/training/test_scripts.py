"""Every script from text files to translations: what a model knows by heart, it writes byte for byte."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from minitransformer import RunConfig, Translator, presets, train
from minitransformer.config import DataConfig, TrainingConfig

CITIES = {
    "en": "London Tokyo Paris Berlin Moscow Cairo Delhi Beijing",
    "ar": "لندن طوكيو باريس برلين موسكو القاهرة دلهي بكين",
    "el": "Λονδίνο Τόκιο Παρίσι Βερολίνο Μόσχα Κάιρο Δελχί Πεκίνο",
    "fa": "لندن توکیو پاریس برلین مسکو قاهره دهلی پکن",
    "fr": "Londres Tokyo Paris Berlin Moscou Caire Delhi Pékin",
    "he": "לונדון טוקיו פריז ברלין מוסקבה קהיר דלהי בייג׳ינג",
    "hi": "लंदन टोक्यो पेरिस बर्लिन मॉस्को काहिरा दिल्ली बीजिंग",
    "ja": "ロンドン 東京 パリ ベルリン モスクワ カイロ デリー 北京",
    "ko": "런던 도쿄 파리 베를린 모스크바 카이로 델리 베이징",
    "ru": "Лондон Токио Париж Берлин Москва Каир Дели Пекин",
    "th": "ลอนดอน โตเกียว ปารีส เบอร์ลิน มอสโก ไคโร เดลี ปักกิ่ง",
    "zh": "伦敦 东京 巴黎 柏林 莫斯科 开罗 德里 北京",
}
SENTENCES = {
    "en": [
        "Is # far?", "“# is beautiful!” he said.", "Ticket to #: 5 €…",
        "# (2nd edition)", "I love # and you.", "Where is #?",
    ],
    "ar": [
        "هل # بعيدة؟", "«# جميلة!»، قال.", "تذكرة إلى #: ٥ يورو…",
        "# (الطبعة ٢)", "أحبّ #، وأحبّكِ أيضًا؛", "أين #؟",
    ],
    "el": [
        "Είναι μακριά: #;", "«# — τι όμορφα!», είπε.", "Εισιτήριο: #, 5 €…",
        "# (2η έκδοση)·", "Αγαπώ: # κι εσένα.", "Πού είναι: #;",
    ],
    "fa": [
        "آیا # دور است؟", "او گفت: «# زیباست!»", "بلیت #: ۵ یورو…",
        "# (چاپ ۲)", "# را می‌خواهم و تو را.", "# کجاست؟",
    ],
    "fr": [
        "#, c’est loin ?", "« # est beau ! », dit-il.", "Billet : #, 5 €…",
        "# (2ᵉ éd.)", "J’aime # et toi, mon cœur.", "Où est # ?",
    ],
    "he": [
        "האם # רחוקה?", "„# יפה!”, אמר.", "כרטיס ל־#: ₪5…",
        "# (מהדורה 2)", "אני אוהב את # ואותךָ.", "איפה #?",
    ],
    "hi": [
        "क्या # दूर है?", "“# सुंदर है!” उसने कहा।", "# का टिकट: ५ यूरो…",
        "# (संस्करण २)", "मुझे # पसंद है, और तुम भी।", "# कहाँ है?",
    ],
    "ja": [
        "#は遠いですか？", "「#は美しい！」と言った。", "#行きの切符：５ユーロ……",
        "『#』（第２版）", "#が好き、あなたも好き。", "　#はどこ？",
    ],
    "ko": [
        "#, 멀어요?", "“# 아름답다!” 그가 말했다.", "#행 표: 5유로…",
        "《#》(제２판)", "#도 너도 사랑해.", "# 어디예요?",
    ],
    "ru": [
        "# — далеко?", "«# — красота!» — сказал он.", "Билет: # — 5 €…",
        "«#» (№ 2)", "Мой город — #, и твой тоже.", "Где #?",
    ],
    "th": [
        "#ไกลไหม", "“#สวยมาก!” เขาพูด", "ตั๋วไป#: ๕ ยูโร ฯลฯ",
        "# (พิมพ์ครั้งที่ ๒)", "ฉันรัก#และน้ำใจของเธอ", "#อยู่ที่ไหน",
    ],
    "zh": [
        "#远吗？", "“#很美！”他说。", "去#的车票：5欧元……",
        "《#》（第２版）", "我爱#，也爱你。", "#在哪里？",
    ],
}  # fmt: skip


def pairs_of(language: str) -> list[tuple[str, str]]:
    """48 pairs; a source begins with the code of the target language."""
    filled = {
        code: [sentence.replace("#", city) for sentence in SENTENCES[code] for city in CITIES[code].split()]
        for code in ("en", language)
    }
    return [(f"{language} {english}", text) for english, text in zip(filled["en"], filled[language], strict=True)]


@pytest.mark.slow
def test_translations_in_eleven_languages_are_the_references_byte_for_byte(tmp_path: Path) -> None:
    pairs = [pair for language in CITIES if language != "en" for pair in pairs_of(language)]
    sources, targets = zip(*pairs, strict=True)

    def files(name: str, lines: Sequence[str]) -> tuple[str, ...]:
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return (name,)

    data = DataConfig(
        raw=tmp_path,
        train_source=files("source", sources),
        train_target=files("target", targets),
        validation_source=files("held-out.source", sources[::9]),
        validation_target=files("held-out.target", targets[::9]),
        vocabulary_size=700,
    )
    model = dataclasses.replace(presets.tiny(), p_drop=0.0, label_smoothing=0.0)
    rate = {"warmup_steps": 80, "learning_rate_factor": 0.3}
    training = TrainingConfig(max_updates=400, batch_tokens=1_000, schedule="linear", validate_every=400, **rate)
    train(RunConfig(tmp_path / "run", data, model, training))
    translations = Translator.load(tmp_path / "run").translate(sources, beam=1)
    assert {s: t for s, t, u in zip(sources, translations, targets, strict=True) if t != u} == {}
