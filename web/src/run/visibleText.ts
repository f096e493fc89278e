/**
 * Makes every character of a text visible, so that people approve what they see. The rules are those of
 * `src/deerflow/domain/visible_text.py`, where they are explained; both are held to `tests/support/visible_text.json`.
 */

/** Controls, every space but the plain one, direction marks, fillers, private use, half surrogate pairs. */
const UNSEEN =
  "\\x00-\\x08\\x0b-\\x1f\\x7f-\\xa0\\xad\\u034f\\u0600-\\u0605\\u061c\\u06dd\\u070f\\u0890-\\u0891\\u08e2\\u115f-\\u1160" +
  "\\u1680\\u17b4-\\u17b5\\u180b-\\u180f\\u2000-\\u200f\\u2028-\\u202f\\u205f-\\u206f\\u2800\\u3000\\u3164\\ud800-\\uf8ff" +
  "\\ufe00-\\ufe0f\\ufeff\\uffa0\\ufff0-\\ufffb\\u{110bd}\\u{110cd}\\u{13430}-\\u{13455}\\u{1bca0}-\\u{1bca3}" +
  "\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}\\u{f0000}-\\u{ffffd}\\u{100000}-\\u{10fffd}";

/** What passes for one of ASCII's marks. */
const PUNCTUATION =
  "\\u01c0-\\u01c3\\u02b9\\u02bb-\\u02bd\\u02c2-\\u02c3\\u02c6\\u02c8\\u02ca-\\u02cb\\u02d0\\u02d7\\u02dc\\u02f8\\u037e" +
  "\\u0387\\u0589\\u05c0\\u05c3\\u066a\\u066d\\u06d4\\u0701-\\u0704\\u2010-\\u2012\\u201a\\u2024\\u2032\\u2035\\u2039-\\u203a" +
  "\\u2041\\u2043-\\u2044\\u204e\\u2052-\\u2053\\u2212\\u2215-\\u2217\\u2223\\u2236\\u223c\\u2758\\u29f5\\u29f8-\\u29f9" +
  "\\ua4fe-\\ua4ff\\ua789\\ufe31-\\ufe34\\ufe4d-\\ufe4f\\ufe50-\\ufe6b\\uff3c\\uff3f-\\uff40\\uff5c\\uff5e";

/** Letters and digits that pass for ASCII's, wherever they stand. */
const STYLED = "\\u0251\\u0261\\u0269\\u2113\\u212a\\u2160-\\u217f\\uff10-\\uff19\\uff21-\\uff3a\\uff41-\\uff5a\\u{1d400}-\\u{1d7ff}";

/** Alphabets that share shapes with Latin: Greek, Cyrillic, Armenian, Cherokee, Coptic, Lisu. */
const FOREIGN =
  "\\u0370-\\u037d\\u037f-\\u0386\\u0388-\\u03ff\\u0400-\\u052f\\u0531-\\u0556\\u0561-\\u0587\\u13a0-\\u13fd\\u1c80-\\u1c8a" +
  "\\u1f00-\\u1fff\\u2c80-\\u2cff\\u2de0-\\u2dff\\ua4d0-\\ua4fd\\ua640-\\ua69f\\uab70-\\uabbf";

const LATIN = "A-Za-z\\u00c0-\\u00d6\\u00d8-\\u00f6\\u00f8-\\u01bf\\u01c4-\\u024f\\u1e00-\\u1eff";

/** Letters that pass for a Latin one: a word made of nothing else passes for a Latin word. */
const LOOKALIKE =
  "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧαινορυχϲϳϹͿ" +
  "АВЕЅІЈКМНОРСТУХаеѕіјорсухѴѵҮүһӀӏԁԌԍԚԛԜԝ" +
  "ՍՕՏԼսօոհց" +
  "\\u13a0-\\u13fd\\u2c80-\\u2cff\\ua4d0-\\ua4fd\\uab70-\\uabbf";

const ALWAYS = new RegExp(`[${UNSEEN}${PUNCTUATION}${STYLED}]`, "gu");
const WORD = new RegExp(`[${LATIN}${FOREIGN}0-9_]+`, "gu");
const FOREIGN_LETTERS = new RegExp(`[${FOREIGN}]`, "gu");
const FOREIGN_LETTER = new RegExp(`[${FOREIGN}]`, "u");
const LATIN_LETTER = new RegExp(`[${LATIN}]`, "u");
const LATIN_SHAPES = new RegExp(`^[${LOOKALIKE}0-9_]+$`, "u");

/** Return a text in which nothing hides and nothing passes for something else; takes linear time. */
export function visible(text: string): string {
  const unmasked = FOREIGN_LETTER.test(text) ? text.replace(WORD, withoutMask) : text;
  return unmasked.replace(ALWAYS, coded);
}

/** Return a word with the codes of foreign letters, where it mixes alphabets or looks all Latin. */
function withoutMask(word: string): string {
  const isMasked = FOREIGN_LETTER.test(word) && (LATIN_LETTER.test(word) || LATIN_SHAPES.test(word));
  return isMasked ? word.replace(FOREIGN_LETTERS, coded) : word;
}

function coded(letter: string): string {
  const point = letter.codePointAt(0) ?? 0;
  const digits = point.toString(16);
  if (point < 0x100) return `\\x${digits.padStart(2, "0")}`;
  return point < 0x10000 ? `\\u${digits.padStart(4, "0")}` : `\\u{${digits}}`;
}
