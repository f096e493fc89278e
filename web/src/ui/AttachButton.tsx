import { Paperclip } from "lucide-react";
import { useRef } from "react";
import { useWords } from "../text/index.ts";
import { IconButton } from "./IconButton.tsx";

/** Opens the system's file chooser. */
export function AttachButton({ onFiles }: { readonly onFiles: (files: File[]) => void }) {
  const words = useWords();
  const picker = useRef<HTMLInputElement>(null);
  return (
    <>
      <IconButton label={words.attach} onClick={() => picker.current?.click()}>
        <Paperclip aria-hidden size={18} />
      </IconButton>
      <input
        ref={picker}
        type="file"
        multiple
        hidden
        aria-label={words.attach}
        onChange={(event) => {
          onFiles([...(event.target.files ?? [])]);
          event.target.value = ""; // so that the same file can be chosen again
        }}
      />
    </>
  );
}
