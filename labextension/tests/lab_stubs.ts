/**
 * Replaces the parts of JupyterLab that need a browser, so that classes that import them can be tested in Node.
 * Import this file before them.
 */

import Module from 'node:module';

const STUBS: Readonly<Record<string, unknown>> = {
  '@jupyterlab/apputils': {},
  '@lumino/widgets': { Widget: Object }
};

const loader = Module as unknown as { _load: (name: string, ...rest: unknown[]) => unknown };
const load = loader._load.bind(Module);
loader._load = (name, ...rest) => STUBS[name] ?? load(name, ...rest);
