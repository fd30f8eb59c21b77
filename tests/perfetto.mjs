// Opens a trace in Perfetto's trace processor, the part of Perfetto's UI that reads traces, and prints the rows of SQL
// queries as JSON: `node perfetto.mjs FOLDER TRACE QUERY...`. FOLDER is the UI's: engine_bundle.js, which is a worker of
// the browser, and trace_processor*.wasm. Messages are TraceProcessorRpc (protos/perfetto/trace_processor).
import fs from 'node:fs';
import path from 'node:path';
import vm from 'node:vm';

const [folder, trace, ...queries] = process.argv.slice(2);
const APPEND = 1, FINALIZE = 2, QUERY = 3;
const METHOD = 2, TRACE_DATA = 101, QUERY_ARGS = 103, APPENDED = 201, FINALIZED = 209, ROWS = 203, FATAL = 5;

// Protobuf, as far as these messages need it.
function varint(value) {
  const out = [];
  let left = value;
  for (; left > 127; left = Math.floor(left / 128)) out.push((left % 128) | 128);
  return [...out, left];
}
const field = (number, data) => Buffer.concat([Buffer.from([...varint(number * 8 + 2), ...varint(data.length)]), data]);
const call = (method, ...args) => field(1, Buffer.concat([Buffer.from([METHOD * 8, method]), ...args]));

function reader(data) {
  let at = 0;
  const next = () => {
    let value = 0n, shift = 0n, byte;
    do {
      byte = data[at++];
      value |= BigInt(byte & 127) << shift;
      shift += 7n;
    } while (byte & 128);
    return value;
  };
  const take = (size) => data.subarray(at, (at += size));
  return { next, take, more: () => at < data.length };
}

function fields(data) {
  const from = reader(data), found = [];
  while (from.more()) {
    const tag = Number(from.next());
    const value = [from.next, () => from.take(8), () => from.take(Number(from.next()))][tag & 7]();
    found.push([tag >> 3, value]);
  }
  return found;
}

// The rows of a batch of cells, which are stored by type.
function* cells(batch) {
  const kinds = [], integers = [], floats = [], texts = [];
  for (const [number, value] of fields(batch)) {
    if (number === 1) kinds.push(...value);
    else if (number === 2) for (const from = reader(value); from.more();) integers.push(Number(BigInt.asIntN(64, from.next())));
    else if (number === 3) for (let at = 0; at < value.length; at += 8) floats.push(value.readDoubleLE(at));
    else if (number === 5) texts.push(...value.toString().split('\0'));
  }
  for (const kind of kinds) yield kind === 2 ? integers.shift() : kind === 3 ? floats.shift() : kind === 4 ? texts.shift() : null;
}

// The worker believes itself in a browser.
const said = [], write = (text) => fs.writeSync(1, text);
console.warn = console.log = console.error = (...words) => said.push(words.join(' '));
globalThis.self = globalThis;
globalThis.WorkerGlobalScope = function WorkerGlobalScope() {};
globalThis.location = { href: `file://${folder}/` };
globalThis.XMLHttpRequest = class {
  open(_, name) { this.file = path.join(folder, path.basename(name)); }
  send() { this.response = fs.readFileSync(this.file); }
};
globalThis.process = undefined;
vm.runInThisContext(fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8'));
let received = [];
const port = { postMessage: (data) => { received.push(Buffer.from(data)); } };
globalThis.onmessage({ data: port });
await new Promise((resolve) => { setTimeout(resolve, 0); });

// The worker answers before the call returns.
function ask(message) {
  received = [];
  port.onmessage({ data: new Uint8Array(message) });
  const answers = fields(Buffer.concat(received)).map(([, answer]) => fields(answer));
  for (const [number, value] of answers.flat())
    if (number === FATAL) throw new Error(value.toString());
  return answers.flat();
}

function check(answers, wanted) {
  for (const [number, value] of answers)
    if (number === wanted)
      for (const [inner, text] of fields(value)) if (inner === 2 && text.length) throw new Error(text.toString());
}

const data = fs.readFileSync(trace), PIECE = 1 << 20;
for (let at = 0; at < data.length; at += PIECE) check(ask(call(APPEND, field(TRACE_DATA, data.subarray(at, at + PIECE)))), APPENDED);
check(ask(call(FINALIZE)), FINALIZED);
const results = queries.map((query) => {
  const answers = ask(call(QUERY, field(QUERY_ARGS, field(1, Buffer.from(query)))));
  const columns = [], values = [];
  check(answers, ROWS);
  for (const [number, value] of answers)
    if (number === ROWS)
      for (const [inner, part] of fields(value)) {
        if (inner === 1) columns.push(part.toString());
        if (inner === 3) values.push(...cells(part));
      }
  const rows = [];
  for (let at = 0; at < values.length; at += columns.length) rows.push(Object.fromEntries(columns.map((name, i) => [name, values[at + i]])));
  return rows;
});
write(`${JSON.stringify(results)}\n`);
