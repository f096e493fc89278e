import { File, FileCode, FileText, Image } from "lucide-react";
import { artifactKind, artifactPlace, fileName } from "../api/artifacts.ts";
import { useWords } from "../text/index.ts";
import { useArtifacts } from "./ArtifactContext.ts";
import { fileSize } from "./format.ts";

const ICONS = { markdown: FileText, text: FileText, html: FileCode, image: Image, audio: File, video: File, binary: File };

/** A file of the thread; a click opens it. */
export function FileChip({ path, size }: { readonly path: string; readonly size?: number }) {
  const words = useWords();
  const artifacts = useArtifacts();
  const place = artifactPlace(encodeURIComponent(path));
  const Icon = ICONS[artifactKind(path)];
  return (
    <button
      type="button"
      disabled={place === null}
      title={path}
      aria-label={words.opensFile(fileName(path))}
      className="flex max-w-72 items-center gap-2 rounded-xl border border-line bg-panel px-3 py-1.5 text-left text-sm enabled:hover:border-accent"
      onClick={() => place && artifacts.open({ path, line: null })}
    >
      <Icon aria-hidden size={16} className="shrink-0 text-accent" />
      <span className="truncate">{fileName(path)}</span>
      {size !== undefined && size > 0 && <span className="shrink-0 text-xs text-muted">{fileSize(size)}</span>}
    </button>
  );
}
