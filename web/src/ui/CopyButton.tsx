import { Check, Copy } from "lucide-react";
import { useState } from "react";
import { useWords } from "../text/index.ts";

const SHOWN_MS = 1500;

/** Copies a text and says so for a moment. */
export function CopyButton({ text, label }: { readonly text: () => string; readonly label?: string }) {
  const words = useWords();
  const [isCopied, setIsCopied] = useState(false);
  const name = isCopied ? words.copied : (label ?? words.copy);

  async function copy(): Promise<void> {
    if (!(await toClipboard(text()))) return;
    setIsCopied(true);
    setTimeout(() => setIsCopied(false), SHOWN_MS);
  }

  return (
    <button
      type="button"
      aria-label={name}
      title={name}
      className="rounded-md p-1.5 text-muted hover:bg-line hover:text-ink"
      onClick={() => void copy()}
    >
      {isCopied ? <Check aria-hidden size={14} /> : <Copy aria-hidden size={14} />}
    </button>
  );
}

/** The clipboard API exists on https and loopback only; elsewhere the old way still works. */
async function toClipboard(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const isDone = document.execCommand("copy");
    area.remove();
    return isDone;
  }
}
