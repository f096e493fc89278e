import { FileText } from "lucide-react";
import type { ReactNode } from "react";
import { artifactUrl, fileName } from "../api/artifacts.ts";
import { useWords } from "../text/index.ts";
import { useArtifacts } from "./ArtifactContext.ts";
import { hostOf, linkTarget } from "./links.ts";

const CITATION = /^citation:\s*/i;
const CHIP =
  "mx-0.5 inline-flex max-w-64 items-center gap-1 rounded-full border border-line bg-accent-soft px-2 py-px align-baseline text-[0.8em] leading-5 text-accent no-underline hover:border-accent";

/** A link of an answer: to the web, to a file of the thread, or shown as a citation. */
export function MarkdownLink({ href, children }: { readonly href: string | undefined; readonly children?: ReactNode }) {
  const words = useWords();
  const artifacts = useArtifacts();
  const target = linkTarget(href);
  const text = typeof children === "string" ? children : null;
  const citation = text !== null && CITATION.test(text) ? text.replace(CITATION, "") : null;
  const label = citation === null ? children : <span className="truncate">{citation}</span>;

  if (target.kind === "refused") return <span title={href}>{label}</span>;
  if (target.kind === "artifact") {
    // A link and no button, so that it wraps like text; opened apart it leads to the file itself.
    return (
      <a
        href={artifactUrl(artifacts.threadId, target.place.path)}
        className={citation === null ? "link" : CHIP}
        title={words.opensFile(fileName(target.place.path))}
        onClick={(event) => {
          if (event.ctrlKey || event.metaKey || event.shiftKey) return;
          event.preventDefault();
          artifacts.open(target.place);
        }}
      >
        {citation !== null && <FileText aria-hidden size={12} className="shrink-0" />}
        {label}
      </a>
    );
  }
  return (
    <a
      href={target.href}
      className={citation === null ? "link" : CHIP}
      title={citation === null ? target.href : `${citation} (${hostOf(target.href)})`}
      target="_blank"
      rel="noopener noreferrer nofollow"
    >
      {label}
    </a>
  );
}
