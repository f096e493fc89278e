import { isValidElement, useRef, type ReactNode } from "react";
import { useWords } from "../text/index.ts";
import { CopyButton } from "./CopyButton.tsx";

/** A block of code with its language and a button that copies it. */
export function CodeBlock({ children }: { readonly children?: ReactNode }) {
  const words = useWords();
  const language = languageOf(children);
  const code = useRef<HTMLPreElement>(null);
  return (
    <div className="overflow-hidden rounded-lg border border-line bg-sunken">
      <div className="flex items-center justify-between border-b border-line py-0.5 pr-1 pl-3 text-xs text-muted">
        <span>{language}</span>
        <CopyButton text={() => code.current?.textContent ?? ""} />
      </div>
      <pre ref={code} role="group" aria-label={language || words.code} tabIndex={0} className="overflow-x-auto p-3 font-mono text-[13px] leading-5 whitespace-pre">
        {children}
      </pre>
    </div>
  );
}

function languageOf(children: ReactNode): string {
  const name = isValidElement<{ className?: string }>(children) ? children.props.className : undefined;
  return /language-([\w+#.-]+)/.exec(name ?? "")?.[1] ?? "";
}
