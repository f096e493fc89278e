/** Cuts Markdown into parts that can be drawn on their own, so that a growing answer redraws only its end. */

const FENCE = /^ {0,3}(`{3,}|~{3,})/;
const LIST_ITEM = /^(?:[-*+]|\d{1,9}[.)])(?:\s|$)/;
const DEFINITION = /^ {0,3}\[[^\]]+\]:/m;

/**
 * Return `text` in parts. A cut is made only before an unindented line that follows an empty one and begins no
 * list item, outside of code: there nothing of what came before can go on. Texts that define links or footnotes
 * stay whole, since those reach across.
 */
export function splitBlocks(text: string): readonly string[] {
  if (DEFINITION.test(text)) return [text];
  const blocks: string[] = [];
  let lines: string[] = [];
  let fence: string | null = null;
  for (const line of text.split("\n")) {
    const isAfterGap = lines.length > 0 && lines[lines.length - 1]?.trim() === "";
    if (fence === null && isAfterGap && /^\S/.test(line) && !LIST_ITEM.test(line)) {
      blocks.push(lines.join("\n"));
      lines = [];
    }
    const mark = FENCE.exec(line)?.[1];
    if (mark && fence === null) fence = mark;
    else if (mark && fence !== null && closes(line, mark, fence)) fence = null;
    lines.push(line);
  }
  if (lines.some((line) => line.trim() !== "")) blocks.push(lines.join("\n"));
  return blocks;
}

function closes(line: string, mark: string, fence: string): boolean {
  return mark[0] === fence[0] && mark.length >= fence.length && line.trim() === mark;
}
