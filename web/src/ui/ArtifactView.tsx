import { Download } from "lucide-react";
import { useState } from "react";
import { artifactKind, artifactUrl, fileName, type ArtifactKind, type ArtifactPlace } from "../api/artifacts.ts";
import { useWords } from "../text/index.ts";
import { classes } from "./format.ts";
import { TextArtifact } from "./TextArtifact.tsx";

interface Props {
  readonly threadId: string;
  readonly place: ArtifactPlace;
  readonly version: unknown;
}

/** One file: previewed where that is safe, and always there to download. */
export function ArtifactView({ threadId, place, version }: Props) {
  const words = useWords();
  const kind = artifactKind(place.path);
  const hasSource = kind === "markdown" || kind === "html";
  const [isSource, setIsSource] = useState(place.line !== null);
  return (
    <>
      <div className="flex items-center gap-2 border-b border-line px-3 py-1.5 text-xs">
        {hasSource &&
          [false, true].map((choice) => (
            <button
              key={String(choice)}
              type="button"
              aria-pressed={isSource === choice}
              className={classes("rounded-full px-2.5 py-1", isSource === choice ? "bg-accent-soft text-accent" : "text-muted hover:text-ink")}
              onClick={() => setIsSource(choice)}
            >
              {choice ? words.source : words.preview}
            </button>
          ))}
        <span className="flex-1" />
        <a
          href={artifactUrl(threadId, place.path, true)}
          download={fileName(place.path)}
          className="flex items-center gap-1.5 rounded-full px-2.5 py-1 text-muted hover:text-ink"
        >
          <Download aria-hidden size={14} />
          {words.download}
        </a>
      </div>
      <div role="group" aria-label={fileName(place.path)} tabIndex={0} className="min-h-0 flex-1 overflow-auto">
        <Preview kind={kind} threadId={threadId} place={place} version={version} isSource={isSource} />
      </div>
    </>
  );
}

function Preview({ kind, threadId, place, version, isSource }: Props & { readonly kind: ArtifactKind; readonly isSource: boolean }) {
  const words = useWords();
  const url = artifactUrl(threadId, place.path);
  switch (kind) {
    case "image":
      return <img src={url} alt={fileName(place.path)} className="mx-auto max-w-full p-4" />;
    case "audio":
      return <audio controls src={url} className="m-4 w-[calc(100%-2rem)]" />;
    case "video":
      return <video controls src={url} className="w-full" />;
    case "binary":
      return <p className="p-4 text-sm text-muted">{words.noPreview}</p>;
    default:
      return <TextArtifact kind={isSource ? "text" : kind} threadId={threadId} place={place} version={version} />;
  }
}
