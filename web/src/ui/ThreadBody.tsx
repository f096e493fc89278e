import { ArrowDown } from "lucide-react";
import type { ReactNode } from "react";
import { useWords } from "../text/index.ts";
import { IconButton } from "./IconButton.tsx";
import type { StickyScroll } from "./useStickyScroll.ts";

interface Props {
  readonly scroll: StickyScroll;
  readonly children: ReactNode;
}

/** The part of a thread that scrolls, with a way back to its end. */
export function ThreadBody({ scroll, children }: Props) {
  const words = useWords();
  return (
    <div className="relative min-h-0 flex-1">
      <div ref={scroll.box} role="group" aria-label={words.conversation} tabIndex={0} className="h-full overflow-y-auto px-4" onScroll={scroll.onScroll}>
        <div ref={scroll.content} className="mx-auto flex min-h-full w-full max-w-3xl flex-col gap-4 pt-2 pb-8">
          {children}
        </div>
      </div>
      {scroll.isAway && (
        <IconButton
          label={words.jumpToEnd}
          className="absolute bottom-2 left-1/2 -translate-x-1/2 border border-line bg-panel shadow"
          onClick={scroll.toEnd}
        >
          <ArrowDown aria-hidden size={16} />
        </IconButton>
      )}
    </div>
  );
}
