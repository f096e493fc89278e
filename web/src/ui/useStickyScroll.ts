/** Keeps the end of a growing page in sight, unless the person has scrolled away from it. */

import { useCallback, useEffect, useRef, useState, type RefObject } from "react";

const NEAR_PIXELS = 80;

export interface StickyScroll {
  /** The element that scrolls. */
  readonly box: RefObject<HTMLDivElement | null>;
  /** The element in it that grows. */
  readonly content: RefObject<HTMLDivElement | null>;
  readonly isAway: boolean;
  readonly onScroll: () => void;
  readonly toEnd: () => void;
}

/** An empty thread is read from its top. */
export function useStickyScroll(isEmpty: boolean): StickyScroll {
  const box = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const isStuck = useRef(true);
  const hasEnd = useRef(!isEmpty);
  hasEnd.current = !isEmpty;
  const lastTop = useRef(0);
  const [isAway, setIsAway] = useState(false);

  const toEnd = useCallback(() => {
    isStuck.current = true;
    setIsAway(false);
    if (box.current) box.current.scrollTop = box.current.scrollHeight;
  }, []);

  const onScroll = useCallback(() => {
    const element = box.current;
    if (!element) return;
    const isNear = element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_PIXELS;
    if (isNear) isStuck.current = true;
    else if (element.scrollTop < lastTop.current) isStuck.current = false; // growing never moves up: a person did
    lastTop.current = element.scrollTop;
    setIsAway(!isStuck.current);
  }, []);

  useEffect(() => {
    if (!box.current || !content.current) return;
    const observer = new ResizeObserver(() => {
      if (isStuck.current && hasEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
    });
    observer.observe(box.current);
    observer.observe(content.current);
    return () => observer.disconnect();
  }, []);

  return { box, content, isAway: isAway && !isEmpty, onScroll, toEnd };
}
