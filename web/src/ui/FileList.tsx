import { memo } from "react";
import { useWords } from "../text/index.ts";
import { FileChip } from "./FileChip.tsx";

/** Files that the agent hands over. */
export const FileList = memo(function FileList({ paths }: { readonly paths: readonly string[] }) {
  const words = useWords();
  return (
    <ul aria-label={words.files} className="flex flex-wrap gap-2">
      {paths.map((path) => (
        <li key={path}>
          <FileChip path={path} />
        </li>
      ))}
    </ul>
  );
});
