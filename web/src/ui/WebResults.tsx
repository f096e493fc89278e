import type { WebResult } from "../run/webResults.ts";
import { visible } from "../run/visibleText.ts";
import { hostOf } from "./links.ts";
import { MarkdownLink } from "./MarkdownLink.tsx";

/** The pages or images that a search found; nothing of them is loaded before a click. */
export function WebResults({ label, results }: { readonly label: string; readonly results: readonly WebResult[] }) {
  return (
    <section aria-label={label}>
      <p className="text-xs text-muted">{label}</p>
      <ol className="max-h-80 space-y-2 overflow-auto rounded-lg bg-sunken p-2 text-xs leading-5">
        {results.map((result, index) => (
          <li key={index}>
            <MarkdownLink href={result.url}>{visible(result.title || result.url)}</MarkdownLink>{" "}
            <span className="text-muted">{hostOf(result.url)}</span>
            {result.content && <p className="line-clamp-3 wrap-anywhere">{visible(result.content)}</p>}
          </li>
        ))}
      </ol>
    </section>
  );
}
