import { CircleAlert, FileText, X } from "lucide-react";
import { useWords } from "../text/index.ts";
import { classes, fileSize } from "./format.ts";
import type { Attachment } from "./useAttachments.ts";

interface Props {
  readonly attachment: Attachment;
  readonly onRemove: (key: string) => void;
}

/** A file about to be sent: how far it is, and a way to take it back. */
export function AttachmentChip({ attachment, onRemove }: Props) {
  const words = useWords();
  const { name, error, file, progress } = attachment;
  return (
    <div
      title={error ?? name}
      className={classes(
        "relative flex max-w-64 items-center gap-2 overflow-hidden rounded-xl border py-1 pr-1 pl-3 text-sm",
        error ? "border-bad text-bad" : "border-line",
      )}
    >
      {error ? <CircleAlert aria-hidden size={15} className="shrink-0" /> : <FileText aria-hidden size={15} className="shrink-0 text-accent" />}
      <span className="truncate">{name}</span>
      <span className="shrink-0 text-xs text-muted">
        {error ? "" : file ? fileSize(file.size) : words.uploading(Math.round(progress * 100))}
      </span>
      <button
        type="button"
        aria-label={words.removeFile(name)}
        className="shrink-0 rounded-md p-1 text-muted hover:bg-sunken hover:text-ink"
        onClick={() => onRemove(attachment.key)}
      >
        <X aria-hidden size={14} />
      </button>
      {!error && !file && (
        <progress value={progress} max={1} aria-label={name} className="absolute inset-x-0 bottom-0 h-0.5 w-full appearance-none [&::-moz-progress-bar]:bg-accent [&::-webkit-progress-bar]:bg-transparent [&::-webkit-progress-value]:bg-accent" />
      )}
    </div>
  );
}
