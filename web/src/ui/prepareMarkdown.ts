/** Makes Markdown mean what models mean by it: nested lists and formulas. Both take linear time. */

const ITEM = /^ *([-*+]|\d{1,9}[.)])( {1,4})(?=\S)/;
const FENCE = /^ *(`{3,}|~{3,})/;
const PUNCTUATION = /[!-/:-@[-`{-~]/g;
const TOKEN = /`+|~{3,}|\\[\s\S]|\$\$/g;
const BLANK_LINE = /\n[ \t]*\n/g;
const CLOSERS: Readonly<Record<string, string>> = { "\\(": "\\)", "\\[": "\\]", $$: "$$" };

/** Return Markdown in which indented items are nested and formulas stay as they are written. */
export function prepareMarkdown(text: string): string {
  return withFormulas(withNestedLists(text));
}

/**
 * Return Markdown in which an indented item belongs to the item above it. Models indent by two spaces; below `1. `
 * Markdown asks for three and would start a new list otherwise.
 */
function withNestedLists(text: string): string {
  // The open items: where the mark stands in the text, and where the item's content starts in ours.
  let levels: { readonly mark: number; readonly content: number }[] = [];
  let shift = 0;
  let fence = "";
  const nested = text.split("\n").map((line) => {
    if (line.trim() === "") return line;
    const rest = line.replace(/^ +/, "");
    const indent = line.length - rest.length;
    const item = fence === "" && (levels.length > 0 || indent < 4) ? ITEM.exec(line) : null;
    fence = fenceAfter(line, fence);
    if (item) {
      while ((levels.at(-1)?.mark ?? -1) >= indent) levels.pop();
      const at = levels.at(-1)?.content ?? Math.min(indent, 3);
      levels.push({ mark: indent, content: at + (item[1]?.length ?? 0) + (item[2]?.length ?? 0) });
      shift = at - indent;
    } else if (indent === 0 && fence === "") {
      levels = [];
      shift = 0;
    }
    return " ".repeat(Math.max(0, indent + shift)) + rest;
  });
  return nested.join("\n");
}

function fenceAfter(line: string, fence: string): string {
  const mark = FENCE.exec(line)?.[1];
  if (mark === undefined) return fence;
  if (fence === "") return mark;
  return mark.startsWith(fence) ? "" : fence;
}

/** Return Markdown whose formulas, `\(…\)`, `\[…\]` and `$$…$$` outside of code, keep every character. */
function withFormulas(text: string): string {
  if (!text.includes("\\(") && !text.includes("\\[") && !text.includes("$$")) return text;
  const next = finder(text);
  let result = "";
  let done = 0;
  TOKEN.lastIndex = 0;
  for (let found = TOKEN.exec(text); found; found = TOKEN.exec(text)) {
    const start = found.index;
    const isCode = found[0].startsWith("`") || found[0].startsWith("~");
    const closer = isCode ? found[0] : CLOSERS[found[0]];
    if (closer === undefined) continue;
    const close = next(closer, start + found[0].length);
    if (isCode) {
      if (close >= 0) TOKEN.lastIndex = close + closer.length;
      else if (closer.length >= 3) break; // a block of code that is still being written
      continue;
    }
    const blank = next("\n\n", start);
    if (close < 0 || (blank >= 0 && blank < close)) continue;
    const end = close + closer.length;
    result += text.slice(done, start) + text.slice(start, end).replace(PUNCTUATION, "\\$&");
    done = TOKEN.lastIndex = end;
  }
  return result + text.slice(done);
}

/** Return a search that goes through the text once for each mark, however often it is asked. */
function finder(text: string): (mark: string, from: number) => number {
  const known = new Map<string, number>();
  return (mark, from) => {
    const before = known.get(mark);
    if (before !== undefined && (before < 0 || before >= from)) return before;
    const found = mark === "\n\n" ? blankLine(text, from) : runOf(text, mark, from);
    known.set(mark, found);
    return found;
  };
}

function blankLine(text: string, from: number): number {
  BLANK_LINE.lastIndex = from;
  return BLANK_LINE.exec(text)?.index ?? -1;
}

/** Return where `mark` stands; a mark of code only where it is not part of a longer one. */
function runOf(text: string, mark: string, from: number): number {
  const letter = mark[0];
  if (letter !== "`" && letter !== "~") return text.indexOf(mark, from);
  for (let at = text.indexOf(mark, from); at >= 0; ) {
    let end = at + mark.length;
    while (text[end] === letter) end += 1;
    if (end - at === mark.length) return at;
    at = text.indexOf(mark, end);
  }
  return -1;
}
