import jupyter from '@jupyter/eslint-plugin';
import js from '@eslint/js';
import ts from 'typescript-eslint';

/** The folders of the labextension. A folder may use the folders that are listed before it. */
const FOLDERS = ['wire', 'model', 'ui', 'views', 'plugins'];

/** Return the configuration that forbids the files in `folder` to use the folders after it. */
function oneWay(folder, files) {
  const after = FOLDERS.slice(FOLDERS.indexOf(folder) + 1);
  const message = `${folder}/ must not use ${after.join('/, ')}/.`;
  return {
    files,
    rules: {
      '@typescript-eslint/no-restricted-imports': [
        'error',
        { patterns: [{ regex: `^[./]+/(${after.join('|')})/`, message }] }
      ]
    }
  };
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
  ...FOLDERS.slice(0, -1).map(folder => oneWay(folder, [`labextension/src/${folder}/**/*.ts`])),
  {
    files: ['labextension/src/plugins/**/*.ts'],
    rules: {
      '@typescript-eslint/no-restricted-imports': [
        'error',
        {
          patterns: [
            {
              regex: '/views/(dashboard|cluster|diagnostics)/(?!(cluster|diagnostics)Section$)',
              allowTypeImports: true,
              message: 'Use import(), because these views are loaded when they are opened.'
            }
          ]
        }
      ]
    }
  },
  // The interfaces of the tokens describe models.
  oneWay('model', ['labextension/src/tokens.ts']),
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
