// One document through a service, with types generated from its OpenAPI: upload, submit, follow, read the Markdown.
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

declare const process: { env: Record<string, string | undefined>; argv: string[] };

type Problem = components["schemas"]["Problem"];

const client = createClient<paths>({
  baseUrl: process.env["DOCMILL_URL"] ?? "",
  headers: { Authorization: `Bearer ${process.env["DOCMILL_API_KEY"]}` },
});

function fail(problem: Problem | undefined): never {
  throw new Error(problem ? `${problem.code}: ${problem.detail} ${problem.next_step}` : "an empty answer");
}

async function upload(name: string, text: string): Promise<string> {
  const form = new FormData();
  form.append("project_id", "1");
  form.append("file", new Blob([text], { type: "text/markdown" }), name);
  const { data, error } = await client.POST("/api/v1/etl/upload", {
    body: { file: name, project_id: 1 },
    bodySerializer: () => form,
  });
  return data ? data.key : fail(error);
}

async function follow(taskId: number): Promise<string[]> {
  const { data, error } = await client.GET("/api/v1/etl/tasks/{task_id}/events", {
    params: { path: { task_id: taskId } },
    headers: { Accept: "text/event-stream" },
    parseAs: "stream",
  });
  if (!data) fail(error);
  let log = "";
  for await (const chunk of data.pipeThrough(new TextDecoderStream())) log += chunk;
  return [...log.matchAll(/^event: (\w+)$/gm)].map((found) => found[1] ?? "");
}

async function readMarkdown(documentId: string): Promise<string> {
  const listed = await client.GET("/api/v1/documents/{document_id}/assets", {
    params: { path: { document_id: documentId } },
  });
  const assets = listed.data ? listed.data.assets : fail(listed.error);
  const markdown = assets.find((asset) => asset.media_type === "text/markdown");
  if (!markdown) throw new Error("the document has no Markdown");
  const { data, error } = await client.GET("/api/v1/assets/{asset_id}/blob", {
    params: { path: { asset_id: markdown.ref.asset_id } },
    parseAs: "text",
  });
  return data ?? fail(error);
}

const key = await upload("minutes.md", "# Minutes\n\nAll agreed.\n");
const submitted = await client.POST("/api/v1/etl/submit", {
  body: { s3_key: key, filename: "minutes.md", priority: 1, options: { language: "en" } },
});
const taskId = submitted.data ? submitted.data.task_id : fail(submitted.error);
const events = await follow(taskId);
const { data: task, error } = await client.GET("/api/v1/etl/tasks/{task_id}", { params: { path: { task_id: taskId } } });
if (!task) fail(error);
const missing = await client.GET("/api/v1/etl/tasks/{task_id}", { params: { path: { task_id: 999999 } } });
console.log(
  JSON.stringify({
    status: task.status,
    events,
    markdown: await readMarkdown(task.metadata.document_id ?? ""),
    missing: missing.error?.next_step,
  }),
);
