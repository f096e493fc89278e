import { ChevronLeft, Download, X } from "lucide-react";
import { useEffect } from "react";
import { allArtifactsUrl, fileName, type ArtifactPlace } from "../api/artifacts.ts";
import { useWords } from "../text/index.ts";
import { ArtifactView } from "./ArtifactView.tsx";
import { FileChip } from "./FileChip.tsx";
import { IconButton } from "./IconButton.tsx";

interface Props {
  readonly threadId: string;
  readonly paths: readonly string[];
  /** Null shows the list. */
  readonly place: ArtifactPlace | null;
  /** Changes when the file may have changed. */
  readonly version: unknown;
  readonly onList: () => void;
  readonly onClose: () => void;
}

/** The thread's files beside the conversation: the list, or one of them. */
export function ArtifactPanel({ threadId, paths, place, version, onList, onClose }: Props) {
  const words = useWords();

  useEffect(() => {
    const onKey = (event: KeyboardEvent) => event.key === "Escape" && onClose();
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, [onClose]);

  return (
    <aside
      aria-label={words.artifacts}
      className="fixed inset-0 z-30 flex flex-col border-line bg-panel lg:static lg:z-auto lg:w-[44%] lg:max-w-3xl lg:min-w-96 lg:border-l"
    >
      <header className="flex items-center gap-1 border-b border-line px-2 py-2">
        {place && paths.length > 0 && (
          <IconButton label={words.backToFiles} onClick={onList}>
            <ChevronLeft aria-hidden size={18} />
          </IconButton>
        )}
        <h2 className="min-w-0 flex-1 truncate px-1 text-sm font-medium" title={place?.path}>
          {place ? fileName(place.path) : words.artifacts}
        </h2>
        <IconButton label={words.close} onClick={onClose}>
          <X aria-hidden size={18} />
        </IconButton>
      </header>
      {place ? (
        <ArtifactView key={place.path} threadId={threadId} place={place} version={version} />
      ) : (
        <ul className="flex flex-col items-start gap-2 overflow-y-auto p-4">
          {paths.map((path) => (
            <li key={path}>
              <FileChip path={path} />
            </li>
          ))}
          {paths.length > 1 && (
            <li>
              <a href={allArtifactsUrl(threadId)} download className="flex items-center gap-1.5 rounded-lg px-1 py-1.5 text-sm text-muted hover:text-ink">
                <Download aria-hidden size={15} />
                {words.downloadAll}
              </a>
            </li>
          )}
          {paths.length === 0 && <li className="text-sm text-muted">{words.noArtifacts}</li>}
        </ul>
      )}
    </aside>
  );
}
