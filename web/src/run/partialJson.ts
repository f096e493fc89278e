/** Reads the arguments of a tool call while the model is still writing them. */

type Arguments = Readonly<Record<string, unknown>>;

/** Beyond this length only finished arguments are read: reading half a book again per token is slow. */
const EAGER_CHARS = 4_000;

/** Return what is already readable of the JSON object that `text` begins. */
export function readPartial(text: string): Arguments {
  if (text.length > EAGER_CHARS) return (text.endsWith("}") ? parse(text) : null) ?? readPartial(text.slice(0, EAGER_CHARS));
  for (let end = text.length; end > 0; end = text.lastIndexOf(",", end - 1)) {
    const value = parse(close(text.slice(0, end)));
    if (value) return value;
  }
  return {};
}

function parse(text: string): Arguments | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Arguments) : null;
  } catch {
    return null;
  }
}

/** Close whatever string, list or object is open at the end of `text`. */
function close(text: string): string {
  const open: string[] = [];
  let isInString = false;
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at];
    if (isInString) {
      if (character === "\\") at += 1;
      else if (character === '"') isInString = false;
    } else if (character === '"') isInString = true;
    else if (character === "{") open.push("}");
    else if (character === "[") open.push("]");
    else if (character === "}" || character === "]") open.pop();
  }
  const body = isInString ? `${text.replace(/\\(u[0-9a-fA-F]{0,3})?$/, "")}"` : text.replace(/[,\s]+$/, "");
  return body + open.reverse().join("");
}
