/** Keeps the end of a growing page in sight, unless the person has scrolled away from it. */

import { useCallback, useLayoutEffect, useRef, useState, type RefObject } from "react";

const NEAR_PIXELS = 80;

interface StickyScroll {
  readonly box: RefObject<HTMLDivElement | null>;
  readonly isAway: boolean;
  readonly onScroll: () => void;
  readonly toEnd: () => void;
}

/** `content` changes whenever something new is to be seen. */
export function useStickyScroll(content: unknown): StickyScroll {
  const box = useRef<HTMLDivElement>(null);
  const isStuck = useRef(true);
  const [isAway, setIsAway] = useState(false);

  const toEnd = useCallback(() => {
    isStuck.current = true;
    setIsAway(false);
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
  }, []);

  const onScroll = useCallback(() => {
    const element = box.current;
    if (!element) return;
    isStuck.current = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_PIXELS;
    setIsAway(!isStuck.current);
  }, []);

  useLayoutEffect(() => {
    if (isStuck.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [content]);

  return { box, isAway, onScroll, toEnd };
}
