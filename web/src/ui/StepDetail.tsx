import type { ToolCall } from "../api/types.ts";
import { useWords } from "../text/index.ts";

/** A result may be megabytes; the page shows this much of it. */
const MOST_CHARS = 20_000;
const BOX = "mt-1 max-h-80 overflow-auto rounded-lg bg-sunken p-2 font-mono text-xs leading-5 whitespace-pre-wrap";

interface Props {
  readonly call: ToolCall;
  readonly output: string;
  readonly result: string;
}

/** What went into a tool call and what came out. */
export function StepDetail({ call, output, result }: Props) {
  const words = useWords();
  const shown = result || output;
  return (
    <div className="space-y-2 border-t border-line px-3 py-2">
      <section>
        <h4 className="text-xs text-muted">{words.arguments}</h4>
        <pre tabIndex={0} className={BOX}>{clip(argumentsText(call))}</pre>
      </section>
      {shown && (
        <section>
          <h4 className="text-xs text-muted">{result ? words.result : words.output}</h4>
          <pre tabIndex={0} className={BOX}>{clip(shown)}</pre>
        </section>
      )}
    </div>
  );
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
