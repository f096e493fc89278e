import type { HumanInputField } from "../api/types.ts";
import { useWords } from "../text/index.ts";

const BOX = "w-full rounded-lg border border-line bg-paper px-3 py-1.5 text-sm";
const INPUT_TYPES = new Set(["text", "number", "date", "email", "url", "time"]);

/** One thing asked, with the input that fits its type. */
export function QuestionField({ id, field }: { readonly id: string; readonly field: HumanInputField }) {
  const words = useWords();
  const shared = { id, name: field.name, required: field.required ?? false };
  const options = (field.options ?? []).map((option) =>
    typeof option === "string" ? { label: option, value: option } : { label: option.label, value: option.value ?? option.label },
  );
  if (options.length > 0) {
    const isMultiple = field.type === "multi_select" || field.type === "multiselect";
    return (
      <select {...shared} multiple={isMultiple} defaultValue={isMultiple ? [] : ""} className={BOX}>
        {!isMultiple && <option value="">{words.chooseOne}</option>}
        {options.map((option) => (
          <option key={option.value} value={option.value}>
            {option.label}
          </option>
        ))}
      </select>
    );
  }
  if (field.type === "textarea") return <textarea {...shared} rows={3} placeholder={field.placeholder} className={BOX} />;
  if (field.type === "checkbox" || field.type === "boolean") return <input {...shared} type="checkbox" value="true" />;
  const type = INPUT_TYPES.has(field.type ?? "") ? field.type : "text";
  return <input {...shared} type={type} placeholder={field.placeholder} className={BOX} />;
}
