import { useEffect, useState } from "react";
import { readArtifact, type ArtifactPlace, type ArtifactText } from "../api/artifacts.ts";
import { useWords } from "../text/index.ts";
import { reasonOf } from "./format.ts";
import { HtmlPreview } from "./HtmlPreview.tsx";
import { Markdown } from "./Markdown.tsx";
import { SourceLines } from "./SourceLines.tsx";

interface Props {
  readonly kind: "text" | "markdown" | "html";
  readonly threadId: string;
  readonly place: ArtifactPlace;
  readonly version: unknown;
}

/** A file made of text, read and shown as what it is. */
export function TextArtifact({ kind, threadId, place, version }: Props) {
  const words = useWords();
  const [read, setRead] = useState<ArtifactText | null>(null);
  const [problem, setProblem] = useState<string | null>(null);

  useEffect(() => {
    const stopper = new AbortController();
    readArtifact(threadId, place.path, stopper.signal).then(
      (found) => {
        setRead(found);
        setProblem(null);
      },
      (error: unknown) => !stopper.signal.aborted && setProblem(reasonOf(error, words)),
    );
    return () => stopper.abort();
  }, [threadId, place.path, version, words]);

  if (problem) return <p role="alert" className="p-4 text-sm text-bad">{problem}</p>;
  if (!read) return <p className="p-4 text-sm text-muted">{words.loading}</p>;
  if (read.isBinary) return <p className="p-4 text-sm text-muted">{words.noPreview}</p>;
  if (read.text === "") return <p className="p-4 text-sm text-muted">{words.emptyArtifact}</p>;
  return (
    <>
      {!read.isWhole && <p role="note" className="bg-warn-soft px-4 py-2 text-sm text-warn">{words.previewCut}</p>}
      {kind === "markdown" && <div className="p-5"><Markdown text={read.text} level={3} /></div>}
      {kind === "html" && <HtmlPreview html={read.text} />}
      {kind === "text" && <SourceLines text={read.text} line={place.line} />}
    </>
  );
}
