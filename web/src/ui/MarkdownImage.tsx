import { ImageIcon } from "lucide-react";
import { useState } from "react";
import { artifactUrl } from "../api/artifacts.ts";
import { useWords } from "../text/index.ts";
import { useArtifacts } from "./ArtifactContext.ts";
import { hostOf, linkTarget } from "./links.ts";

const IMAGE = "max-h-96 rounded-lg border border-line";

/** An image of an answer: the thread's own are shown, others only when asked for (loading tells their host). */
export function MarkdownImage({ src, alt }: { readonly src: string | undefined; readonly alt: string }) {
  const words = useWords();
  const { threadId } = useArtifacts();
  const [isWanted, setIsWanted] = useState(false);
  const target = linkTarget(src);

  if (target.kind === "artifact") {
    return <img src={artifactUrl(threadId, target.place.path)} alt={alt} loading="lazy" className={IMAGE} />;
  }
  if (target.kind === "refused" || !/^https?:/i.test(target.href)) return <span>{alt}</span>;
  if (isWanted) return <img src={target.href} alt={alt} referrerPolicy="no-referrer" className={IMAGE} />;
  return (
    <button
      type="button"
      className="inline-flex items-center gap-2 rounded-lg border border-line bg-sunken px-3 py-1.5 text-sm text-muted hover:text-ink"
      onClick={() => setIsWanted(true)}
    >
      <ImageIcon aria-hidden size={15} />
      {alt && <span>{alt}</span>}
      <span className="underline underline-offset-2">{words.loadImage(hostOf(target.href))}</span>
    </button>
  );
}
