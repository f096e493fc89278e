import { useWords } from "../text/index.ts";
import { CopyButton } from "./CopyButton.tsx";

interface Props {
  readonly label: string;
  /** What is shown; lines are wrapped. */
  readonly text: string;
  /** What the button copies: the text itself, without what only explains it. */
  readonly copied: string;
}

/** A named text in a box that scrolls, and a button that copies it without the line breaks of the wrapping. */
export function TextBox({ label, text, copied }: Props) {
  const words = useWords();
  return (
    <section>
      <div className="flex items-center justify-between gap-2">
        <p className="text-xs text-muted">{label}</p>
        <CopyButton text={() => copied} label={words.copyNamed(label)} />
      </div>
      <pre role="group" aria-label={label} tabIndex={0} className="max-h-80 overflow-auto rounded-lg bg-sunken p-2 font-mono text-xs leading-5 whitespace-pre-wrap">{text}</pre>
    </section>
  );
}
