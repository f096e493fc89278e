import type { ToolCall } from "../api/types.ts";
import { onlyText } from "../run/approvals.ts";
import { visible } from "../run/visibleText.ts";
import { webResults } from "../run/webResults.ts";
import { useWords } from "../text/index.ts";
import { TextBox } from "./TextBox.tsx";
import { WebResults } from "./WebResults.tsx";

/** A result may be megabytes; the page shows this much of it. */
const MOST_CHARS = 20_000;

interface Props {
  readonly call: ToolCall;
  readonly output: string;
  readonly result: string;
}

/** What went into a tool call and what came out. */
export function StepDetail({ call, output, result }: Props) {
  const words = useWords();
  const shown = result || output;
  const found = webResults(call.name, result);
  return (
    <div className="space-y-2 border-t border-line px-3 py-2">
      <TextBox label={words.arguments} text={visible(clip(argumentsText(call)))} copied={onlyArgument(call) ?? argumentsText(call)} />
      {found && <WebResults label={words.result} results={found} />}
      {shown && !found && <TextBox label={result ? words.result : words.output} text={clip(shown)} copied={shown} />}
    </div>
  );
}

/** Return the text of a call that has one argument only, such as a command: that is what people copy. */
function onlyArgument(call: ToolCall): string | null {
  const key = onlyText(call);
  return key === null ? null : String(call.args[key]);
}

function argumentsText(call: ToolCall): string {
  return Object.entries(call.args)
    .filter(([name]) => name !== "description")
    .map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value, null, 2)}`)
    .join("\n");
}

function clip(text: string): string {
  return text.length > MOST_CHARS ? `${text.slice(0, MOST_CHARS)}\n…` : text;
}
