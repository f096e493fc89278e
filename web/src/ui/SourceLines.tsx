import { useEffect, useRef } from "react";
import { classes } from "./format.ts";

/** Beyond this many lines the file is shown without numbers: a row each would make the page slow. */
const MOST_NUMBERED = 5000;

/** The text of a file with line numbers; a line that a citation names is marked and in sight. */
export function SourceLines({ text, line }: { readonly text: string; readonly line: number | null }) {
  const marked = useRef<HTMLLIElement>(null);
  const lines = text.replace(/\n$/, "").split("\n");

  useEffect(() => {
    void marked.current?.scrollIntoView({ block: "center" }); // newer browsers return a promise, which is no clean-up
  }, [line, text]);

  if (lines.length > MOST_NUMBERED) {
    return <pre tabIndex={0} className="p-4 font-mono text-[13px] leading-5 whitespace-pre-wrap">{text}</pre>;
  }
  return (
    <ol className="py-3 font-mono text-[13px] leading-5">
      {lines.map((content, index) => {
        const isMarked = index + 1 === line;
        return (
          <li
            key={index}
            ref={isMarked ? marked : undefined}
            aria-current={isMarked ? "location" : undefined}
            className={classes("flex gap-3 pr-4", isMarked && "bg-warn-soft")}
          >
            <span aria-hidden className="w-12 shrink-0 text-right text-muted/70 select-none">{index + 1}</span>
            <span className="min-w-0 flex-1 whitespace-pre-wrap">{content || " "}</span>
          </li>
        );
      })}
    </ol>
  );
}
