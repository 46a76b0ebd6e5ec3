import jupyter from '@jupyter/eslint-plugin';
import js from '@eslint/js';
import ts from 'typescript-eslint';

/** The folders of the labextension. A folder may use the folders that are listed before it. */
const FOLDERS = ['wire', 'model', 'ui', 'views', 'plugins'];

/** Forbids imports of views that are loaded when they are opened, except of their sections in the panel. */
const LOADED_LATER = {
  regex: '^\\.\\./(views/)?(dashboard|cluster|doctor|journal)/(?!(cluster|doctor)Section$)',
  allowTypeImports: true,
  message: 'Use import(), because these views are loaded when they are opened.'
};

/** Return the configuration that forbids imports by `files`. */
function restricted(files, ...patterns) {
  return { files, rules: { '@typescript-eslint/no-restricted-imports': ['error', { patterns }] } };
}

/** Return the pattern of imports that are forbidden in `folder`: those of the folders after it. */
function foldersAfter(folder) {
  const after = FOLDERS.slice(FOLDERS.indexOf(folder) + 1);
  return { regex: `^[./]+/(${after.join('|')})/`, message: `${folder}/ must not use ${after.join('/, ')}/.` };
}

export default ts.config(
  // Of the settings' schemas, the rules would only say that lists of choices need titles. Those without are numbers,
  // and JupyterLab's types of toolbar items.
  { ignores: ['labextension/lib/**', 'labextension/tests/lib/**', 'labextension/schema/**'] },
  js.configs.recommended,
  ...ts.configs.strictTypeChecked,
  ...ts.configs.stylisticTypeChecked,
  ...jupyter.configs.recommended,
  {
    languageOptions: {
      parserOptions: {
        project: ['labextension/tsconfig.json', 'labextension/tests/tsconfig.json'],
        tsconfigRootDir: import.meta.dirname
      }
    },
    rules: {
      '@typescript-eslint/explicit-module-boundary-types': 'error',
      '@typescript-eslint/consistent-type-imports': 'error',
      eqeqeq: 'error',
      // Large views are loaded when they are opened. The rest is one file, since that is smaller (rspack.config.cjs).
      'jupyter/prefer-lazy-imports': 'off',
      // `make check` finds texts that are in no catalog, and knows which come from elsewhere (tools/translation.py).
      'jupyter/no-dynamic-translation': 'off',
      // The models live as long as the page, and listen to a notebook as long as it lives. With `this`,
      // disconnecting from the notebook that was active would end that.
      'jupyter/prefer-signal-this-arg': 'off',
      // Lumino's signals take the object beside its method: connect(this.follow, this).
      '@typescript-eslint/unbound-method': 'off'
    }
  },
  {
    files: ['labextension/src/**/*.ts'],
    ignores: ['labextension/src/ui/dom.ts'],
    rules: {
      'no-restricted-syntax': [
        'error',
        { selector: "AssignmentExpression[left.property.name='hidden']", message: 'Use setHidden().' }
      ]
    }
  },
  ...FOLDERS.slice(0, -1).map(folder =>
    restricted([`labextension/src/${folder}/**/*.ts`], foldersAfter(folder))
  ),
  restricted(
    ['labextension/src/views/{cards,memory,panel,status}/**/*.ts'],
    foldersAfter('views'),
    LOADED_LATER
  ),
  restricted(['labextension/src/plugins/**/*.ts'], LOADED_LATER),
  // The interfaces of the tokens describe models.
  restricted(['labextension/src/tokens.ts'], foldersAfter('model')),
  // Plain JavaScript, of no TypeScript project.
  {
    files: ['labextension/style/*.js', 'labextension/*.cjs'],
    languageOptions: { globals: { module: 'writable', require: 'readonly' } },
    extends: [ts.configs.disableTypeChecked],
    // A .cjs file has no import statements.
    rules: { '@typescript-eslint/no-require-imports': 'off' }
  },
  {
    files: ['labextension/tests/*.ts'],
    rules: {
      // node:test awaits what test() returns by itself.
      '@typescript-eslint/no-floating-promises': 'off',
      // What tests make isn't translated, and ends with them.
      'jupyter/no-untranslated-string': 'off',
      'jupyter/require-disposable-transfer': 'off'
    }
  }
);
