import { useDefaultRenderTool } from "@copilotkit/react-core/v2";
import { Facts } from "./Requests";

/** Calls of the agent's own tools, with what came of them. */
export function useToolCalls() {
  useDefaultRenderTool({
    render: ({ name, parameters, result }) => {
      const given = (parameters ?? {}) as Record<string, unknown>;
      return (
        <details className="call" data-tool={name}>
          <summary>
            <code>
              {name}({Object.values(given).map(String).join(", ")})
            </code>
            <span>{result ?? "…"}</span>
          </summary>
          <Facts of={given} />
          {result && <pre>{result}</pre>}
        </details>
      );
    },
  });
}
