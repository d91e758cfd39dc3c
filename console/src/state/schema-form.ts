/** The fields of a form, made of the JSON Schema of a tool's arguments, and back. */

export interface Field {
  readonly name: string;
  readonly title: string;
  readonly description?: string;
  /** `json`: what has no field of its own is typed as JSON. */
  readonly input: "text" | "number" | "integer" | "boolean" | "choice" | "json";
  readonly choices?: readonly unknown[];
  readonly isRequired: boolean;
  readonly initial?: unknown;
}

type Schema = Readonly<Record<string, unknown>>;

const MOST_FIELDS = 60;

export function fieldsOf(schema: unknown): Field[] {
  const { properties, required } = object(schema);
  const needed = new Set(Array.isArray(required) ? required : []);
  return Object.entries(object(properties))
    .slice(0, MOST_FIELDS)
    .map(([name, each]) => fieldOf(name, object(each), needed.has(name)));
}

function fieldOf(name: string, schema: Schema, isRequired: boolean): Field {
  const { title, description, enum: choices, default: initial } = schema;
  return {
    name,
    title: typeof title === "string" ? title : name,
    description: typeof description === "string" ? description : undefined,
    input: Array.isArray(choices) ? "choice" : inputOf(schema["type"]),
    choices: Array.isArray(choices) ? choices : undefined,
    isRequired,
    initial,
  };
}

function inputOf(type: unknown): Field["input"] {
  const only = Array.isArray(type) ? type.find((each) => each !== "null") : type;
  switch (only) {
    case "string":
      return "text";
    case "number":
    case "integer":
    case "boolean":
      return only;
    default:
      return "json";
  }
}

/** What a field shows at first. */
export function initialText({ initial, input, choices }: Field): string {
  if (initial === undefined) return input === "boolean" ? "false" : "";
  if (choices) return String(choices.indexOf(initial));
  return input === "json" || typeof initial === "object" ? JSON.stringify(initial) : String(initial);
}

/**
 * The arguments of what was typed into the fields. Fields that are empty and not required are left out.
 *
 * @throws Error with a sentence for whoever typed it.
 */
export function argumentsOf(fields: readonly Field[], typed: Readonly<Record<string, string>>): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  for (const field of fields) {
    const text = typed[field.name] ?? initialText(field);
    if (text === "" && !(field.input === "text" && field.isRequired)) {
      if (field.isRequired) throw new Error(`${field.title} is needed`);
      continue;
    }
    found[field.name] = valueOf(field, text);
  }
  return found;
}

function valueOf({ input, title, choices }: Field, text: string): unknown {
  switch (input) {
    case "text":
      return text;
    case "boolean":
      return text === "true";
    case "choice":
      return choices?.[Number(text)];
    case "number":
    case "integer": {
      const value = Number(text);
      if (!Number.isFinite(value) || (input === "integer" && !Number.isInteger(value))) {
        throw new Error(`${title} is ${text}, expected ${input === "integer" ? "a whole number" : "a number"}`);
      }
      return value;
    }
    case "json":
      try {
        return JSON.parse(text);
      } catch {
        throw new Error(`${title} is not JSON; a text is written in quotation marks`);
      }
  }
}

function object(value: unknown): Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Schema) : {};
}
