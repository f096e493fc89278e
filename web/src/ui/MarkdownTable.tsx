import type { ReactNode } from "react";
import { useWords } from "../text/index.ts";

/** A table that scrolls by itself where it is too wide, also with the keys. */
export function MarkdownTable({ children }: { readonly children?: ReactNode }) {
  const words = useWords();
  return (
    <div role="group" aria-label={words.table} tabIndex={0} className="table-scroll">
      <table>{children}</table>
    </div>
  );
}
