/** The MCP tools of the participants, with a form for each. */

import { useState } from "preact/hooks";

import type { Watch } from "../session/watch.js";
import { obstacleTo } from "../state/permits.js";
import type { Field } from "../state/schema-form.js";
import { argumentsOf, fieldsOf, initialText } from "../state/schema-form.js";
import { JsonTree } from "./json-tree.js";
import { attempt, Button, Empty } from "./parts.js";

interface Tool {
  readonly name: string;
  readonly description?: string;
  readonly inputSchema?: unknown;
}

const LIST_MS = 5000;

export function Tools({ watch }: { watch: Watch }) {
  const [who, setWho] = useState("");
  const [tools, setTools] = useState<readonly Tool[]>();
  const others = watch.model.people.present.filter(({ id }) => id !== watch.me);
  const obstacle = obstacleTo({ me: watch.me, capabilities: watch.space.capabilities }, "mcp/request");

  async function ask(id: string): Promise<void> {
    setWho(id);
    setTools(undefined);
    if (id === "") return;
    await attempt(async () => {
      const answer = await watch.space.request("tools/list", {}, { to: id, timeout: LIST_MS });
      const found = (answer as { tools?: unknown }).tools;
      setTools(Array.isArray(found) ? found.filter(isTool) : []);
    });
  }

  return (
    <section class="panel" aria-labelledby="tools-title">
      <h2 id="tools-title">Tools</h2>
      <label>
        Whose
        <select
          name="whose"
          value={who}
          disabled={obstacle !== undefined}
          onChange={(event) => void ask(event.currentTarget.value)}
        >
          <option value="">{obstacle ?? "choose…"}</option>
          {others.map(({ id }) => (
            <option key={id} value={id}>
              {id}
            </option>
          ))}
        </select>
      </label>
      {who === "" && <Empty title="Choose a participant">Then you can call the tools that it offers.</Empty>}
      {tools?.length === 0 && <Empty title={`${who} offers no tools`} />}
      {tools?.map((tool) => (
        <ToolForm key={`${who} ${tool.name}`} watch={watch} who={who} tool={tool} />
      ))}
    </section>
  );
}

function isTool(value: unknown): value is Tool {
  return typeof (value as { name?: unknown } | null)?.name === "string";
}

function ToolForm({ watch, who, tool }: { watch: Watch; who: string; tool: Tool }) {
  const fields = fieldsOf(tool.inputSchema);
  const [typed, setTyped] = useState<Readonly<Record<string, string>>>({});
  const [result, setResult] = useState<{ value: unknown }>();
  return (
    <form
      class="tool"
      aria-label={tool.name}
      onSubmit={(event) => {
        event.preventDefault();
        void attempt(async () => {
          const value = await watch.space.callTool(tool.name, argumentsOf(fields, typed), { to: who });
          setResult({ value });
        });
      }}
    >
      <h3>
        <bdi>{tool.name}</bdi>
      </h3>
      {tool.description && <p class="muted">{String(tool.description).slice(0, 500)}</p>}
      {fields.map((field) => (
        <Input
          key={field.name}
          field={field}
          value={typed[field.name] ?? initialText(field)}
          change={(value) => setTyped({ ...typed, [field.name]: value })}
        />
      ))}
      <div class="buttons">
        <button type="submit" class="button primary">
          Call
        </button>
        {result && <Button act={() => setResult(undefined)}>Clear</Button>}
      </div>
      {result && (
        <div class="result" role="status">
          <JsonTree value={shownOf(result.value)} />
        </div>
      )}
    </form>
  );
}

/** The structured part of a result says it best, if there is one. */
function shownOf(value: unknown): unknown {
  return (value as { structuredContent?: unknown } | null)?.structuredContent ?? value;
}

function Input({ field, value, change }: { field: Field; value: string; change: (value: string) => void }) {
  const { name, title, description, input, choices, isRequired } = field;
  if (input === "boolean") {
    return (
      <label class="check">
        <input
          name={name}
          type="checkbox"
          checked={value === "true"}
          onChange={(event) => change(String(event.currentTarget.checked))}
        />
        {title}
      </label>
    );
  }
  const common = { name, value, title: description, "aria-required": isRequired };
  return (
    <label>
      <span>
        {title}
        {isRequired && <span class="required"> *</span>}
      </span>
      {input === "choice" ? (
        <select {...common} onChange={(event) => change(event.currentTarget.value)}>
          <option value="">choose…</option>
          {choices?.map((choice, index) => (
            <option key={index} value={String(index)}>
              {typeof choice === "string" ? choice : JSON.stringify(choice)}
            </option>
          ))}
        </select>
      ) : input === "json" ? (
        <textarea {...common} rows={2} placeholder="JSON" onInput={(event) => change(event.currentTarget.value)} />
      ) : (
        <input
          {...common}
          inputMode={input === "text" ? "text" : "decimal"}
          onInput={(event) => change(event.currentTarget.value)}
        />
      )}
      {description && <small class="muted">{description.slice(0, 200)}</small>}
    </label>
  );
}
