/** Files dropped anywhere on the page are attached. */

import { useEffect, useRef, useState } from "react";

/** Return whether files are being dragged over the page. */
export function useDropZone(onFiles: (files: File[]) => void): boolean {
  const [isOver, setIsOver] = useState(false);
  const depth = useRef(0);
  const handler = useRef(onFiles);
  handler.current = onFiles;

  useEffect(() => {
    const listening = new AbortController();
    const options = { signal: listening.signal };
    const ends = () => {
      depth.current = 0;
      setIsOver(false);
    };
    window.addEventListener("dragenter", (event) => {
      if (!hasFiles(event)) return;
      depth.current += 1;
      setIsOver(true);
    }, options);
    window.addEventListener("dragleave", (event) => {
      if (!hasFiles(event)) return;
      depth.current -= 1;
      if (depth.current <= 0) ends();
    }, options);
    window.addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault(), options);
    window.addEventListener("drop", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault(); // or the browser would leave the page and show the file
      ends();
      handler.current([...(event.dataTransfer?.files ?? [])]);
    }, options);
    return () => listening.abort();
  }, []);

  return isOver;
}

function hasFiles(event: DragEvent): boolean {
  return event.dataTransfer?.types.includes("Files") ?? false;
}
